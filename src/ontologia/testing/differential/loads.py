"""Random loads, in process and on Spark, held against an expectation that is worked out in plain Python.

A world is a few loads into two stores, one for each engine: sources of every kind with odd values, numbers in text, old
dates, bad rows, twins and rows of one identity in any order, upserts and syncs, relations in the same commit, and
compaction in between. What a value becomes is written down beside it, and not asked of the table of conversions.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.engines.initializing import initialize_storage
from ontologia.errors import ValidationError
from ontologia.model import Entity, Field, Relation
from ontologia.runtime.session import Session
from ontologia.spark import Pipeline
from ontologia.testing.differential.checking import Disagreement


class Item(Entity):
    """One field of each kind."""

    id: Field[str] = Field(primary_key=True)
    number: Field[int | None] = Field(default=None)
    real: Field[float | None] = Field(default=None)
    flag: Field[bool | None] = Field(default=None)
    day: Field[date | None] = Field(default=None)
    moment: Field[datetime | None] = Field(default=None)
    text: Field[str | None] = Field(default=None)
    parts: Field[list[int] | None] = Field(default=None)


class Link(Relation[Item, Item]):
    """Loaded in the commit of its items."""

    weight: Field[int | None] = Field(default=None)


BAD = object()
"""What a value becomes that does not fit."""
TEXT, INT, FLOAT, BOOL, DAY = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.date32()
DECIMAL, SMALL_DECIMAL, MOMENT, LOCAL = (
    pa.decimal128(20, 2),
    pa.decimal128(3, 2),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
)
OLD = [date(1, 1, 1), date(1500, 3, 1), date(1582, 10, 10), date(1899, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


NOON = timedelta(hours=12)
VALUES: dict[str, dict[pa.DataType, list[tuple[Any, Any]]]] = {
    "number": {
        TEXT: [
            ("12", 12),
            (" 7 ", 7),
            ("12.0", 12),
            ("+3", 3),
            ("-0", 0),
            ("1_0", BAD),
            ("x", BAD),
            ("1e3", BAD),
            (str(2**63 - 1), 2**63 - 1),
            (str(2**63), BAD),
            ("10d", BAD),
            ("١٢", BAD),
        ],
        INT: [(0, 0), (-5, -5), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))],
        FLOAT: [(1.0, 1), (-2.0, -2), (1.5, BAD), (1e300, BAD), (float("nan"), BAD), (2.0**53, 2**53)],
        DECIMAL: [(Decimal("3.00"), 3), (Decimal("-4.00"), -4), (Decimal("3.50"), BAD)],
    },
    "real": {
        TEXT: [
            ("1.5", 1.5),
            ("1e3", 1000.0),
            (" -2 ", -2.0),
            ("inf", float("inf")),
            ("1e999", BAD),
            ("1,5", BAD),
            (".5", 0.5),
            ("NaN", float("nan")),
            ("1f", BAD),
        ],
        INT: [(3, 3.0), (2**53, float(2**53)), (2**53 + 1, BAD)],
        FLOAT: [(1.5, 1.5), (1e300, 1e300), (float("inf"), float("inf"))],
        DECIMAL: [(Decimal("1.25"), 1.25), (Decimal("0.10"), 0.1)],
    },
    "flag": {
        TEXT: [("yes", True), ("0", False), (" TRUE ", True), ("off", False), ("2", BAD), ("", BAD)],
        INT: [(0, False), (1, True), (2, BAD)],
        BOOL: [(True, True), (False, False)],
        DECIMAL: [(Decimal("1.00"), True), (Decimal("0.00"), False), (Decimal("0.50"), BAD)],
        SMALL_DECIMAL: [(Decimal("1.00"), True), (Decimal("0.00"), False), (Decimal("9.99"), BAD)],
    },
    "day": {
        TEXT: [(day.isoformat(), day) for day in OLD]
        + [("2023-02-29", BAD), ("24-1-1", BAD), ("2024-1-2", date(2024, 1, 2))],
        DAY: [(day, day) for day in OLD],
        MOMENT: [(_midnight(day), day) for day in OLD] + [(_midnight(OLD[4]) + NOON, BAD)],
    },
    "moment": {
        TEXT: [
            ("2024-01-01T10:00:00+02:00", datetime(2024, 1, 1, 8, tzinfo=UTC)),
            ("soon", BAD),
            ("2024-01-01T25:00:00", BAD),
            ("1500-03-01 12:00:00", _midnight(OLD[1]) + NOON),
            ("0001-01-01T00:00:00Z", _midnight(OLD[0])),
        ],
        INT: [(86_400, datetime(1970, 1, 2, tzinfo=UTC)), (10**12, BAD), (0, datetime(1970, 1, 1, tzinfo=UTC))],
        DAY: [(day, _midnight(day)) for day in OLD],
        MOMENT: [
            (_midnight(day) + timedelta(microseconds=1), _midnight(day) + timedelta(microseconds=1)) for day in OLD
        ],
        LOCAL: [((_midnight(day) + NOON).replace(tzinfo=None), _midnight(day) + NOON) for day in OLD],
    },
    "text": {
        TEXT: [("a", "a"), ("Größe", "Größe"), ('a,b"c', 'a,b"c'), ("two\nlines", "two\nlines"), (" ", " ")],
        INT: [(5, "5"), (-7, "-7")],
        DAY: [(day, day.isoformat()) for day in OLD],
    },
    "parts": {TEXT: [("[1, 2]", [1, 2]), ("[]", []), ('[1, "x"]', BAD), ("no", BAD), ("[[", BAD)]},
}
"""By field and type of the column that fills it: values, and what they become."""
SOURCES = ("csv", "json", "parquet", "table")
IN_JSON = (TEXT, INT, BOOL)
Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Rows on their way in, as a source has them, with the columns' types; what each becomes, None where it is bad."""

    kind: str
    kinds: Mapping[str, pa.DataType]
    rows: Sequence[Row]
    become: Sequence[Row | None]

    def place(self, folder: Path, name: str) -> Any:
        if self.kind == "csv":
            path = folder / f"{name}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(self.kinds), quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)
            return str(path)
        if self.kind == "json":
            path = folder / f"{name}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
            return str(path)
        columns = {name: pa.array([row[name] for row in self.rows], kind) for name, kind in self.kinds.items()}
        if self.kind == "table":
            return pa.table(columns)
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        return str(folder / f"{name}.parquet")


def draw_source(random: Random, *, bad: float) -> Source:
    """A source of items: some fields, some keys, and of some keys several rows."""
    kind = random.choice(SOURCES)
    kinds: dict[str, pa.DataType] = {"id": TEXT}
    for name in random.sample(sorted(VALUES), random.randint(1, len(VALUES))):
        allowed = [
            of
            for of in VALUES[name]
            if kind in ("parquet", "table") or of == TEXT or (kind == "json" and of in IN_JSON)
        ]
        kinds[name] = random.choice(allowed)
    kinds["at"] = INT if kind != "csv" else TEXT
    rows: list[Row] = []
    become: list[Row | None] = []
    for key in random.sample([f"k{number}" for number in range(12)], random.randint(1, 10)):
        for place in range(random.choice([1, 1, 1, 2, 3])):
            at = 10 ** random.randint(0, 2) * 10 + place
            row, found = _draw_row(random, kinds, kind, bad)
            twins = random.choice([1, 1, 1, 2])
            at_text = str(at) if kind == "csv" else at
            rows += [{"id": key, **row, "at": at_text}] * twins
            become += [None if found is None else {"id": key, **found, "at": at}] * twins
    order = list(range(len(rows)))
    random.shuffle(order)
    return Source(kind, kinds, [rows[place] for place in order], [become[place] for place in order])


def _draw_row(random: Random, kinds: Mapping[str, pa.DataType], source: str, bad: float) -> tuple[Row, Row | None]:
    row: Row = {}
    found: Row | None = {}
    for name, kind in kinds.items():
        if name in ("id", "at"):
            continue
        values = VALUES[name][kind]
        fitting = [pair for pair in values if pair[1] is not BAD]
        given, value = random.choice(values if random.random() < bad else fitting)
        if random.random() < 0.15 or (source == "csv" and given == ""):
            given = value = None
        row[name] = given
        if value is BAD:
            found = None
        elif found is not None:
            found[name] = value
    return row, found


def expect(state: Mapping[str, Row], source: Source, *, mode: str, missing: str) -> dict[str, Row]:
    """The state after a load, of the rows that fit."""
    last: dict[str, Row] = {}
    for row in source.become:
        if row is not None and (row["id"] not in last or last[row["id"]]["at"] <= row["at"]):
            last[row["id"]] = row
    filled = set(source.kinds) - {"at"}
    found = dict(state) if mode == "upsert" else {}
    for key, row in last.items():
        stored = state.get(key, {}) if missing == "keep" else {}
        fields = {name: stored.get(name) for name in Item.__declaration__.options}
        found[key] = {**fields, **{name: row[name] for name in filled}}
    return found


def _has_ties(source: Source) -> bool:
    """Whether two rows of one key that fit are the last in order, and differ."""
    by_key: dict[tuple[str, int], list[str]] = {}
    for row in source.become:
        if row is not None:
            by_key.setdefault((row["id"], row["at"]), []).append(repr(row))
    return any(len(set(rows)) > 1 for rows in by_key.values())


@cache
def _session() -> Any:
    from ontologia.spark import spark_session

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    return spark_session(master="local[2]", config=settings)


def soak_seed(seed: int) -> int:
    """One world with both engines. Returns how many states were compared."""
    return check_loads(seed, {"in process": None, "on Spark": _session()})


def check_loads(seed: int, engines: Mapping[str, Any]) -> int:
    """Load a world by each engine, and hold the state after each load against what it should be."""
    random, checks = Random(seed), 0
    with _stores(engines) as (folder, stores):
        state: dict[str, Row] = {}
        links: dict[tuple[str, str], int] = {}
        past: list[tuple[int, dict[str, Row]]] = []
        for step in range(random.randint(2, 4)):
            source = draw_source(random, bad=random.choice([0.0, 0.0, 0.2]))
            while _has_ties(source):
                source = draw_source(random, bad=0.0)
            mode: Any = random.choice(["upsert", "upsert", "sync"])
            missing: Any = random.choice(["default", "keep"])
            rejected = sum(row is None for row in source.become)
            ends = [(random.choice(source.rows)["id"], f"k{random.randrange(12)}") for _ in range(random.randint(0, 3))]
            weights = {pair: random.randrange(3) for pair in ends}
            refused = mode == "sync" and rejected > 0
            before = state
            if not refused:
                state = expect(state, source, mode=mode, missing=missing)
                links |= weights
            reports = {}
            limits: dict[str, Any] = {"max_removals": 100} if mode == "sync" else {}
            for name, engine in engines.items():
                run = Pipeline(engine, stores[name], on_invalid="quarantine")
                run.load(
                    source.place(folder, f"{step}"),
                    into=Item,
                    order_by="at",
                    mode=mode,
                    missing=missing,
                    **limits,
                )
                if weights:
                    given = [{"left_key": one, "right_key": two, "weight": w} for (one, two), w in weights.items()]
                    run.load(pa.Table.from_pylist(given), into=Link)
                where = f"seed {seed}, load {step} {name}: {mode}, missing={missing}, {source}"
                try:
                    reports[name] = run.commit()
                except ValidationError as problem:
                    if not refused:
                        raise Disagreement(f"{where}\nrefused: {problem}") from problem
                    continue
                if refused:
                    raise Disagreement(f"{where}\nwas not refused")
                counts = reports[name].types["Item"]
                removed = len(before.keys() - state.keys())
                _compare(where, (counts.read, counts.rejected, counts.removed), (len(source.rows), rejected, removed))
            for name in engines:
                where = f"seed {seed}, load {step} {name}: {mode}, missing={missing}, {source}"
                with Session(stores[name], entity_types=[Item], relation_types=[Link]) as session:
                    if random.random() < 0.3 and "://" in stores[name]:
                        session.engine.compact(apply=True)
                    _compare(where, _state(session), state)
                    found = {
                        (one.left_key, one.right_key): one.weight for one in session.query().relations(Link).collect()
                    }
                    _compare(f"{where}: links", found, links)
                    for commit, at in past:
                        _compare(f"{where}: as of {commit}", _state(session, commit), at)
                    head = session.engine.catalog().head
                checks += 2 + len(past)
            if head and (not past or past[-1][0] < head):
                past.append((head, state))
    return checks


@contextmanager
def _stores(engines: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, str]]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = {engine: (folder / f"store-{place}").as_uri() for place, engine in enumerate(engines)}
        for uri in stores.values():
            initialize_storage(storage_uri=uri)
        yield folder, stores


def _state(session: Session, commit: int | None = None) -> dict[str, Row]:
    query = session.query().entities(Item)
    rows = (query if commit is None else query.as_of(commit)).collect()
    return {row.id: {name: getattr(row, name) for name in Item.__declaration__.options} for row in rows}


def _compare(where: str, found: Any, wanted: Any) -> None:
    if _plain(found) != _plain(wanted):
        raise Disagreement(f"{where}\nfound:  {_plain(found)}\nwanted: {_plain(wanted)}")


def _plain(value: Any) -> str:
    """A value that can be compared and shown: NaN equals itself."""
    return repr(dict(sorted(value.items())) if isinstance(value, dict) else value)
