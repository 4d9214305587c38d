"""Arrow rows from anywhere as rows of a type.

Whether columns fit is checked once, from the types alone. Values are checked table by table, on executors too; a row
that does not fit gets a reason, and whoever brought it decides what to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ontologia.errors import ValidationError
from ontologia.model import Column, Declaration, TypeSchema, encode_json
from ontologia.model.fields import FieldOptions
from ontologia.model.typespec import accepts_none, annotation_of
from ontologia.model.validation import value_adapter
from ontologia.model.values import field_text
from ontologia.runtime.intake.checks import Check, RowCheck, checks_of, instance_column, refuse_validators
from ontologia.runtime.intake.conversions import convert, describe_refusal, kind_of, rule_of, spell

ORDER = "__order"
"""The column that says which row of an identity is the last."""
BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""What Python takes for white space: a key of nothing else is blank."""

KindTest = Callable[[pa.DataType], bool]


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


TAKES: dict[str, tuple[KindTest, ...]] = {
    "str": (is_text,),
    "int": (pa.types.is_signed_integer, pa.types.is_decimal),
    "float": (pa.types.is_float64, pa.types.is_float32, pa.types.is_signed_integer, pa.types.is_decimal),
    "bool": (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_decimal),
    "datetime": (pa.types.is_timestamp,),
    "date": (pa.types.is_date32,),
    "bytes": (pa.types.is_binary, pa.types.is_large_binary),
}
"""Which columns fill a field as they are. Anything else is for the caller to cast: that is where values change."""
KEYS: tuple[KindTest, ...] = (is_text, pa.types.is_signed_integer, pa.types.is_timestamp, pa.types.is_date32)


class RejectedRow(NamedTuple):
    """A row that does not fit, and why."""

    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Intake:
    """Which column of a DataFrame fills what, agreed on the driver and carried to executors.

    `columns` maps fields and keys to columns; `defaults` has the fields that no column fills; `json_text` names the
    structured fields that arrive as text. A load also says what stands in for a value that is missing (`fallbacks`),
    and what the ends of a relation hold (`ends`): the keys of the entities there. `row_check` looks at whole rows, in
    process alone.
    """

    schema: TypeSchema
    columns: Mapping[str, str]
    defaults: Mapping[str, Any]
    json_text: frozenset[str]
    checks: Mapping[str, Check]
    order_by: str | None = None
    fallbacks: Mapping[str, Any] = field(default_factory=dict)
    ends: Mapping[str, Column] = field(default_factory=dict)
    row_check: RowCheck | None = None

    @property
    def required(self) -> frozenset[str]:
        """Fields that must have a value in every row."""
        return frozenset(
            column.name
            for column in self.schema.columns
            if not (accepts_none(column.spec) if column.scalar is None else column.nullable)
        )

    def take(self, given: pa.Table, source: pa.Table | None = None) -> tuple[pa.Table, list[RejectedRow]]:
        """The rows that fit, named and typed as storage has them, and those that do not, as `source` has them."""
        found = _Checked(self, given)
        fields = found.fields()
        columns = found.identity(fields) | fields
        if self.order_by is not None:
            columns[ORDER] = found.given.column(self.order_by)
        table = pa.table(columns)
        kept = [row for row in range(table.num_rows) if row not in found.reasons] if found.reasons else None
        if kept is not None:
            table = table.take(pa.array(kept, pa.int64()))
        if self.row_check is not None:
            table, problems = self.row_check.take(table)
            found.reasons |= {row if kept is None else kept[row]: problem for row, problem in problems.items()}
        return table, found.reject(found.given if source is None else source) if found.reasons else []


def fit_columns(
    given: pa.Schema, schema: TypeSchema, declaration: Declaration | None = None, order_by: str | None = None
) -> Intake:
    """Fit columns to a type; what cannot fit is said here, before any row is read."""
    if declaration is not None:
        refuse_validators(declaration)
    kinds = {field.name: field.type for field in given}
    columns = _match(schema, kinds, order_by)
    missing = [name for name in (*_keys(schema), *schema.names) if name not in columns]
    defaults, unfilled = _defaults(schema, declaration, missing)
    if unfilled:
        raise ValidationError(
            f"nothing fills {', '.join(unfilled)} of {schema.ref}: there are the columns {', '.join(kinds)}"
        )
    _check_kinds(schema, columns, kinds)
    structured = [column.name for column in schema.columns if column.scalar is None and column.name in columns]
    json_text = frozenset(name for name in structured if is_text(kinds[columns[name]]))
    checks = _checks(schema) if declaration is None else checks_of(declaration)
    return Intake(schema, columns, defaults, json_text, checks, order_by)


def must_be_filled(options: FieldOptions) -> bool:
    """Whether each row must say a value. So it is with a key that a factory makes: it would make one for all rows."""
    return options.required or (options.primary_key and options.default_factory is not None)


def _keys(schema: TypeSchema) -> list[str]:
    if schema.ref.kind == "entity":
        return []
    return ["left_key", "right_key", *([] if schema.instance_key is None else ["instance_key"])]


def _match(schema: TypeSchema, kinds: Mapping[str, Any], order_by: str | None) -> dict[str, str]:
    """Columns by the field or key they fill. One that fills nothing is a mistake, unless it gives the order."""
    if order_by is not None and order_by not in kinds:
        raise ValidationError(f"orderBy names {order_by!r}, and there are the columns {', '.join(kinds)}")
    found: dict[str, str] = {}
    for name in kinds:
        if name in schema.by_name or (schema.ref.kind == "relation" and name in schema.ref.identity):
            found[name] = name
        elif name == schema.instance_key:
            found["instance_key"] = name
        elif name != order_by:
            advice = "write the state, not its versions" if name in ("commit_id", "operation") else "drop it"
            raise ValidationError(f"{schema.ref} has no field {name!r}: {advice}")
    return found


def _defaults(
    schema: TypeSchema, declaration: Declaration | None, missing: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Values for fields without a column: the class's defaults; without a class, None where that is a value."""
    defaults: dict[str, Any] = {}
    unfilled = []
    for name in missing:
        column = schema.by_name.get(name)
        options = None if declaration is None else declaration.options.get(name)
        if column is not None and options is not None and not must_be_filled(options):
            value = options.make_default()
            defaults[name] = value if column.scalar is not None or value is None else encode_json(value)
        elif column is not None and options is None and accepts_none(column.spec):
            defaults[name] = None
        else:
            unfilled.append(name)
    return defaults, unfilled


def _check_kinds(schema: TypeSchema, columns: Mapping[str, str], kinds: Mapping[str, pa.DataType]) -> None:
    for name, source in columns.items():
        kind = kinds[source]
        column = schema.by_name.get(name)
        if column is None:
            allowed, wanted = KEYS, "a key: text, a whole number, a date or a timestamp"
        elif column.scalar is None:
            continue  # any value can be written as JSON; whether it is the right one is checked row by row
        else:
            allowed, wanted = TAKES[column.scalar], column.describe()
        if not any(takes(kind) for takes in allowed):
            raise ValidationError(f"{schema.ref}.{name} is {wanted}, and the column {source!r} is {kind}: cast it")


def _checks(schema: TypeSchema) -> dict[str, Check]:
    """Checks of structured fields, from what the store remembers of their annotations."""
    return {
        column.physical: Check(value_adapter(annotation_of(column.spec), {}).validator)
        for column in schema.columns
        if column.scalar is None
    }


class _Checked:
    """One table on its way in."""

    def __init__(self, plan: Intake, given: pa.Table) -> None:
        self.plan = plan
        self.reasons: dict[int, str] = {}
        self.given = self._readable(given)

    def _readable(self, given: pa.Table) -> pa.Table:
        """The table with texts that can be read. Rows with others are flagged."""
        for place, name in enumerate(given.column_names):
            try:
                given.column(place).validate(full=True)
            except pa.ArrowInvalid:
                wrong = unreadable(given.column(place))
                self._flag(wrong, f"{name}: has text that is not valid UTF-8")
                given = given.set_column(place, name, make_printable(given.column(place), wrong))
        return given

    def reject(self, given: pa.Table) -> list[RejectedRow]:
        rows = sorted(self.reasons)
        given = given.take(rows)
        shown = pa.table([_sayable(column) for column in given.columns], names=given.column_names)
        sources = shown.to_pylist(maps_as_pydicts="lossy")
        return [
            RejectedRow(self.reasons[row], json.dumps(source, default=str, ensure_ascii=False))
            for row, source in zip(rows, sources, strict=True)
        ]

    def identity(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The keys as text; that of an entity as the checks have left it."""
        schema = self.plan.schema
        if schema.ref.kind == "entity":
            return {"entity_key": key_texts(fields[schema.by_name[schema.primary_key or ""].physical])}
        found = {}
        for name in ("left_key", "right_key"):
            found[name] = self._present(name, key_texts(self._key(name, self.plan.columns[name])))
        return found | {"instance_key": self._instance_key()}

    def _key(self, name: str, source: str) -> pa.ChunkedArray:
        given, key = self.given.column(source), self.plan.ends.get(name)
        return given if key is None else self._values(key, given)

    def _instance_key(self) -> pa.ChunkedArray:
        name = self.plan.schema.instance_key
        source = self.plan.columns.get("instance_key")
        if source is None:
            return pa.chunked_array([pa.repeat(pa.scalar(""), self.given.num_rows)])
        given = self.given.column(source)
        if name is None:
            keys = pc.fill_null(key_texts(given), "")
            self._flag(pc.not_equal(keys, ""), f"{self.plan.schema.ref} has no instance key")
            return keys
        keys = self._present(name, key_texts(self._key("instance_key", source)))
        self._flag(pc.equal(pc.utf8_trim(keys, characters=BLANKS), ""), f"{name}: a key must not be blank")
        return self._validate(instance_column(name), keys)

    def fields(self) -> dict[str, Any]:
        required = self.plan.required
        found: dict[str, Any] = {}
        for column in self.plan.schema.columns:
            source = self.plan.columns.get(column.name)
            if source is None:
                value = pa.scalar(self.plan.defaults[column.name], column.arrow_type)
                values = pa.chunked_array([pa.repeat(value, self.given.num_rows)])
            else:
                given = self.given.column(source)
                values = self._values(column, given)
                if column.name in self.plan.fallbacks:
                    default = pa.scalar(self.plan.fallbacks[column.name], column.arrow_type)
                    values = pc.if_else(pc.is_null(given), default, values)
                if column.name in required:
                    self._present(column.name, values)
            found[column.physical] = self._validate(column, values)
        return found

    def _values(self, column: Column, given: pa.ChunkedArray) -> pa.ChunkedArray:
        if column.scalar is None:
            return given.cast(pa.string()) if column.name in self.plan.json_text else self._encode(column, given)
        values, lost = convert(column, given)
        if pc.any(lost).as_py():
            for row in pc.indices_nonzero(lost).to_pylist():
                self.reasons.setdefault(row, _lost(column, given, row))
        return values

    def _encode(self, column: Column, given: pa.ChunkedArray) -> pa.ChunkedArray:
        if is_plain(given.type):
            return json_texts(given)
        texts: list[str | None] = []
        for row, value in enumerate(given.to_pylist(maps_as_pydicts="lossy")):
            try:
                texts.append(None if value is None else field_text(value))
            except (TypeError, ValueError) as problem:
                texts.append(None)
                self.reasons.setdefault(row, f"{column.name}: {problem}")
        return pa.chunked_array([pa.array(texts, pa.string())])

    def _validate(self, column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
        check = self.plan.checks.get(column.physical)
        if check is None:
            return values
        checked, problems = check.of(column, values)
        for row, problem in problems.items():
            self.reasons.setdefault(row, problem)
        return checked

    def _present(self, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        if values.null_count:
            self._flag(pc.is_null(values), f"{name}: must have a value")
        return values

    def _flag(self, wrong: pa.ChunkedArray, reason: str) -> None:
        for row in pc.indices_nonzero(pc.fill_null(wrong, False)).to_pylist():
            self.reasons.setdefault(row, reason)


def _lost(column: Column, given: pa.ChunkedArray, row: int) -> str:
    """What is said of a value that a field cannot take."""
    kind, scalar = kind_of(given.type), column.scalar or "str"
    if kind is None or rule_of(scalar, kind) is None:
        return describe_refusal(column.name, kind or "bytes", scalar)
    wanted = "UTF-8 text" if scalar == "str" and kind == "bytes" else scalar
    return f"{column.name}: cannot be read as {wanted}: {_sayable(given.slice(row, 1))[0].as_py()}"


def _sayable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that Python can say: text with a sign for what is not UTF-8, and times, which have more years, as text."""
    if is_text(values.type):
        return make_printable(values, None)
    is_time = pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)
    return values.cast(pa.string()) if is_time else values


def unreadable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which values have text that is not UTF-8. They are looked at one by one: only where some are known to."""

    def is_wrong(row: int) -> bool:
        try:
            values.take([row]).validate(full=True)
        except pa.ArrowInvalid:
            return True
        return False

    return pa.chunked_array([[is_wrong(row) for row in range(len(values))]], pa.bool_())


def make_printable(values: pa.ChunkedArray, wrong: pa.ChunkedArray | None) -> pa.ChunkedArray:
    """Values that can be shown: text with a sign for what cannot be read, and nothing in place of a nested value."""
    if wrong is not None and not is_text(values.type):
        return pc.if_else(wrong, pa.scalar(None, values.type), values)
    texts = [text and text.decode(errors="replace") for text in values.cast(pa.large_binary()).to_pylist()]
    return pa.chunked_array([texts], values.type)


def key_texts(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Keys as the texts they are stored under, as `key_text` has them."""
    return spell(kind_of(keys.type) or "", keys)


def is_plain(kind: pa.DataType) -> bool:
    """Whether values are texts, whole numbers and truths, in any nesting: their JSON is the same whoever writes it."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(is_plain(kind.field(place).type) for place in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_plain(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def json_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Plain values as JSON, written column-wise by DuckDB. The check of a field gives it its canonical form."""
    given = pa.table({"value": values})
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.register("given", given)
        found = connection.execute(
            "SELECT CASE WHEN value IS NOT NULL THEN to_json(value)::VARCHAR END AS text FROM given"
        )
        return found.to_arrow_table().column("text").cast(pa.string())
