"""A tour of Ontologia on a small data set: declare, commit, query, travel in time, migrate.

    make demo        or        python examples/demo.py [path of a new store]

Everything happens in one SQLite file. The data are bodies of the solar system and spacecraft that visited them.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ontologia import Entity, Field, Ontology, Relation, count, max, right

DATA = Path(__file__).parent / "data"
console = Console(highlight=False)


# --- what we know about: entities and relations are classes ---


class Body(Entity):
    name: Field[str] = Field(primary_key=True)
    kind: Field[str] = Field(index=True)
    radius_km: Field[float]
    discovered: Field[date | None] = None


class Mission(Entity):
    name: Field[str] = Field(primary_key=True)
    launched: Field[date]
    agency: Field[str]


class Orbits(Relation[Body, Body]):
    distance_km: Field[float]


class Visited(Relation[Mission, Body]):
    how: Field[str] = Field(instance_key=True)  # a mission may visit a body as an orbiter and as a lander
    year: Field[int]


# --- where it comes from ---


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        yield from csv.DictReader(file)


def bodies() -> Iterator[Body | Orbits]:
    for row in rows("bodies.csv"):
        discovered = date.fromisoformat(row["discovered"]) if row["discovered"] else None
        yield Body(name=row["name"], kind=row["kind"], radius_km=float(row["radius_km"]), discovered=discovered)
        if row["orbits"]:
            yield Orbits(left_key=row["name"], right_key=row["orbits"], distance_km=float(row["distance_km"]))


def missions() -> Iterator[Mission | Visited]:
    for row in rows("missions.csv"):
        yield Mission(name=row["name"], launched=date.fromisoformat(row["launched"]), agency=row["agency"])
        for visit in row["visits"].split("; "):
            body, how, year = visit.rsplit(" ", 2)
            yield Visited(left_key=row["name"], right_key=body, how=how, year=int(year))


# --- the tour ---


def main(path: Path) -> None:
    with Ontology(str(path), entity_types=[Body, Mission], relation_types=[Orbits, Visited]) as onto:
        first = load(onto)
        questions(onto)
        traversal(onto)
        time_travel(onto, first)
    migration(path)
    console.print(f"\nAll of this is one file of {path.stat().st_size // 1024} KiB.")


def load(onto: Ontology) -> int:
    chapter("Commit", "ensure() says what should be; commit() writes what differs, as one commit")
    session = onto.session()
    session.ensure(bodies())
    first = session.commit(meta={"source": "bodies.csv"})
    session.ensure(missions())
    second = session.commit(meta={"source": "missions.csv"})
    session.ensure(bodies())
    again = session.commit()
    show(("commit", "what"), [(first, "bodies and orbits"), (second, "missions and visits"), (again, "bodies again")])
    assert first is not None
    return first


def questions(onto: Ontology) -> None:
    chapter("Filter and sort", 'where((Body.kind == "moon") & (Body.radius_km > 1_000)).order_by(…)')
    large = onto.query().entities(Body).where((Body.kind == "moon") & (Body.radius_km > 1_000))
    found = large.order_by(Body.radius_km, descending=True).limit(5).collect()
    show(("moon", "radius, km", "discovered"), [(body.name, body.radius_km, body.discovered) for body in found])

    chapter("Aggregate", "group_by(Body.kind).having(count() > 1).agg(n=count(), largest=max(Body.radius_km))")
    groups = onto.query().entities(Body).group_by(Body.kind).having(count() > 1)
    show(("kind", "n", "largest, km"), [tuple(row.values()) for row in groups.agg(n=count(), r=max(Body.radius_km))])

    chapter("Filter relations by what they join", 'where(right(Visited).kind == "moon"), newest first')
    visits = onto.query().relations(Visited).where(right(Visited).kind == "moon")
    newest = visits.order_by(Visited.year, descending=True).limit(4).collect()
    show(
        ("mission", "launched", "moon", "how", "year"),
        [(visit.left_key, visit.left.launched, visit.right_key, visit.how, visit.year) for visit in newest],
    )


def traversal(onto: Ontology) -> None:
    chapter("Traverse", "from ESA's missions, via(Visited) to bodies, via(Orbits) to what these orbit")
    paths = onto.query().entities(Mission).where(Mission.agency.contains("ESA")).via(Visited).via(Orbits).collect()
    show(
        ("mission", "how", "visited", "which orbits"),
        [(path.source.name, path.relations[0].how, *(body.name for body in path.entities)) for path in paths],
    )


def time_travel(onto: Ontology, before: int) -> None:
    chapter("Change", "on 24 August 2006, a planet became a dwarf planet")
    session = onto.session()
    for name in ("Pluto", "Ceres", "Eris"):
        body = onto.query().entities(Body).where(Body.name == name).first()
        assert body is not None
        body.kind = "dwarf planet"
        session.ensure(body)
    commit = session.commit(meta={"source": "IAU resolution 5A"})
    assert commit is not None
    changes = [(change["operation"], change["type_name"], change["key"]) for change in onto.list_commit_changes(commit)]
    show(("operation", "type", "key"), changes)

    chapter("Travel in time", f"the same question now and as_of({before})")
    planets = onto.query().entities(Body).where(Body.kind == "planet")
    show(("state", "planets"), [("now", planets.count()), (f"as of commit {before}", planets.as_of(before).count())])

    chapter("History", "where(…).with_history() gives every version")
    versions = onto.query().entities(Body).where(Body.name == "Pluto").with_history().collect()
    show(("commit", "Pluto was a"), [(version.meta().commit_id, version.kind) for version in versions])


class MissionByAgencies(Entity, name="Mission"):
    """The next version of `Mission`: one text of agencies becomes a list of them."""

    name: Field[str] = Field(primary_key=True)
    launched: Field[date]
    agencies: Field[list[str]]


def split_agencies(row: dict[str, Any]) -> dict[str, Any]:
    row["agencies"] = row.pop("agency").split("/")
    return row


def migration(path: Path) -> None:
    chapter("Migrate", "Mission.agency: str becomes Mission.agencies: list[str]; preview, then apply with its token")
    with Ontology(str(path), entity_types=[Body, MissionByAgencies]) as onto:
        steps = {("Mission", 1): split_agencies}
        plan = onto.migrate(dry_run=True, upgraders=steps)
        result = onto.migrate(dry_run=False, token=plan.token, upgraders=steps, meta={"why": "joint missions"})
        difference = plan.diffs[0]
        show(
            ("type", "added", "removed", "rows", "version"),
            [("Mission", ", ".join(difference.added), ", ".join(difference.removed), result.rows_migrated,
              result.new_schema_versions["Mission"])],
        )  # fmt: skip
        joint = onto.query().entities(MissionByAgencies).where(MissionByAgencies.agencies.contains("ESA"))
        show(
            ("ESA took part in", "agencies"),
            [(mission.name, ", ".join(mission.agencies)) for mission in joint.collect()],
        )

        chapter("The log", "list_commits(): what happened, newest first")
        show(("id", "at", "metadata"), [(log["id"], log["created_at"][:19], noted(log)) for log in onto.list_commits()])


def noted(commit: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in commit["metadata"].items() if isinstance(value, str))


# --- on screen ---


def chapter(title: str, text: str) -> None:
    console.print(f"\n[bold cyan]{title}[/]  [dim]{text.replace('[', chr(92) + '[')}[/]", soft_wrap=True)


def show(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    table = Table(box=box.ROUNDED if console.is_terminal else box.ASCII2, header_style="bold")
    for heading in headings:
        table.add_column(heading)
    for line in lines:
        table.add_row(
            *("–" if value is None else f"{value:,}" if isinstance(value, float) else str(value) for value in line)
        )
    console.print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "solar-system.db")
        console.print("To keep it and look inside: python examples/demo.py solar-system.db")
