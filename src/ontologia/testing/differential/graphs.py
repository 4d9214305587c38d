"""Random lives of a graph, held against a model in plain dicts: what every branch, tag and commit reads, what merges
make, what diffs and logs say; through schema changes, cleanups, compactions, deleted branches and writers that die.

The model shares no code with the graph. It names fields and types as they were called first, whatever they are now.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import new_class
from typing import Any

from ontologia.errors import BranchError, HistoryGapError, MergeConflictError
from ontologia.model import Declared, Entity, Field, Relation
from ontologia.omnigraph.graph import OpenMode
from ontologia.omnigraph.snapshots import StoredSnapshot, resolve
from ontologia.runtime.graphs.omnigraph import Omnigraph
from ontologia.testing.differential.checking import Disagreement

STEPS = 40
KEYS = "abcdef"
Row = Mapping[str, Any]
Tables = dict[str, dict[str, Row]]  #: rows by the first name of their type, and id
KNOWS = "edge:Knows"
PERSON = "node:Person"
CITY = "node:City"


@dataclass(frozen=True)
class Shape:
    """What the types look like: the name of the field `age`, whether there is a `note`, and what `City` is called."""

    age: str = "age"
    note: bool = False
    city: str | None = None

    def current_name(self, name: str) -> str:
        return self.age if name == "age" else name

    def first_name(self, key: str) -> str:
        return CITY if key == f"node:{self.city}" else key

    @cache  # noqa: B019 — there are a dozen shapes
    def types(self, previous: Shape | None = None) -> list[type[Declared]]:
        """Classes of this shape, which say what was called otherwise before."""
        former = previous.age if previous is not None and previous.age != self.age else None
        body: dict[str, Any] = {"name": Field(primary_key=True), self.age: Field(default=0, index="btree")}
        notes: dict[str, Any] = {"name": Field[str], self.age: Field[int]}
        if former is not None:
            body[self.age] = Field(default=0, index="btree", renamed_from=former)
        if self.note:
            body["note"], notes["note"] = Field(default=""), Field[str]
        person = _declare("Person", Entity, body, notes)
        knows = _declare("Knows", Relation[person, person], {"since": Field(default=0)}, {"since": Field[int]})  # type: ignore[valid-type]
        found: list[type[Declared]] = [person, knows]
        if self.city is not None:
            was = None if previous is None or previous.city in (None, self.city) else previous.city
            named = {} if was is None else {"renamed_from": was}
            found.append(_declare(self.city, Entity, {"name": Field(primary_key=True)}, {"name": Field[str]}, **named))
        return found


def _declare(name: str, base: Any, body: Mapping[str, Any], notes: Mapping[str, Any], **options: Any) -> Any:
    """A class of this name, made as a class statement would."""
    namespace = {**body, "__annotations__": dict(notes), "__module__": __name__, "__qualname__": name}
    return new_class(name, (base,), options, lambda found: found.update(namespace))


@dataclass(frozen=True)
class ModelCommit:
    """One commit as the model has it."""

    parents: tuple[str, ...]
    tables: Tables
    shape: Shape


class Killed(BaseException):
    """The death of a writer: nothing catches it."""


@dataclass
class GraphModel:
    """A graph and its model, and the steps that change both."""

    rng: Random
    uri: str
    shape: Shape = Shape()
    commits: dict[str, ModelCommit] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)  #: commits that must be readable
    log: list[str] = field(default_factory=list)
    checks: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        self.graph = Omnigraph.init(self.uri, types=self.shape.types())
        known = self.graph.commits()
        for record in reversed(known):
            self.commits[record.graph_commit_id] = ModelCommit(record.parents, {}, self.shape)
        self.heads["main"] = known[0].graph_commit_id
        self.promised = set(self.heads.values())

    # --- the model ---

    def state(self, branch: str) -> Tables:
        return self.commits[self.heads[branch]].tables

    def ancestors(self, commit: str) -> set[str]:
        found: set[str] = set()
        queue = [commit]
        while queue:
            name = queue.pop()
            if name not in found:
                found.add(name)
                queue += self.commits[name].parents
        return found

    def record(self, branch: str, tables: Tables, *merged: str) -> None:
        """What the graph has just done on a branch, if it made a commit of it."""
        head = self.graph.snapshot(branch).commit
        assert head is not None
        if head.graph_commit_id == self.heads[branch]:
            self.expect(f"{branch} without a commit", self.state(branch), tables)
            return
        parents = (self.heads[branch], *merged)
        self.expect(f"the parents of {head.graph_commit_id}", head.parents, parents)
        self.commits[head.graph_commit_id] = ModelCommit(parents, tables, self.shape)
        self.heads[branch] = head.graph_commit_id
        self.promised.add(head.graph_commit_id)

    def expect(self, what: str, found: Any, expected: Any) -> None:
        self.checks += 1
        if found != expected:
            steps = "\n".join(self.log)
            raise Disagreement(f"{steps}\n\n{what}\n\nfound    {found}\n\nexpected {expected}")

    # --- steps ---

    def step(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (8, self.write),
            (3, self.fork),
            (5, self.merge),
            (2, self.delete_branch),
            (1, self.tag),
            (2, self.clean),
            (2, self.optimize),
            (1, self.reopen),
            (2, self.crash),
            (2, self.migrate),
            (1, self.compact_manifest),
        ]
        action = self.rng.choices([call for _, call in choices], [weight for weight, _ in choices])[0]
        self.log.append(action.__name__)
        action()
        self.check()

    def branch(self) -> str:
        return self.rng.choice(sorted(self.heads))

    def write(self) -> None:
        branch = self.branch()
        change, tables = self.draw_change(branch)
        self.log[-1] += f" {branch}"
        change(branch)
        self.record(branch, tables)

    def draw_change(self, branch: str) -> tuple[Callable[[str], None], Tables]:
        """Some rows written and some deleted, and what is there afterwards."""
        rng, types = self.rng, self.shape.types()
        tables = {key: dict(rows) for key, rows in self.state(branch).items()}
        people = tables.setdefault(PERSON, {})
        written: list[Declared] = []
        names = rng.sample(KEYS, rng.randrange(0, 3))
        for name in names:
            values = {"age": rng.randrange(4)} | ({"note": rng.choice(["", "x"])} if self.shape.note else {})
            written.append(types[0](name=name, **{self.shape.current_name(it): value for it, value in values.items()}))
            people[name] = {"name": name, **values}
        gone = [it for it in rng.sample(KEYS, rng.randrange(0, 2)) if it in people and it not in names]
        for name in gone:
            del people[name]
            edges = tables.get(KNOWS, {})
            tables[KNOWS] = {id: row for id, row in edges.items() if name not in (row["src"], row["dst"])}
        ends = sorted(people)
        if len(ends) > 1 and rng.random() < 0.6:
            left, right = rng.sample(ends, 2)
            since = rng.randrange(3)
            written.append(types[1](left_key=left, right_key=right, since=since))
            tables.setdefault(KNOWS, {})[f'["{left}","{right}"]'] = {"src": left, "dst": right, "since": since}
        if self.shape.city is not None and rng.random() < 0.4:
            name = rng.choice("xyz")
            written.append(types[2](name=name))
            tables.setdefault(CITY, {})[name] = {"name": name}

        def change(branch: str) -> None:
            with self.graph.transaction(branch) as tx:
                if gone:
                    tx.delete(types[0], gone, cascade=True)
                tx.upsert(written)

        return change, {key: rows for key, rows in tables.items() if rows}

    def fork(self) -> None:
        if len(self.heads) > 3:
            return
        sources: list[tuple[str, str]] = [(name, head) for name, head in self.heads.items()]
        sources += [(name, commit) for name, commit in self.tags.items()]
        sources += [(commit, commit) for commit in sorted(self.promised)]
        source, commit = self.rng.choice([it for it in sources if self.commits[it[1]].shape == self.shape])
        name = self.rng.choice(["dev", "fix", "new"])
        if name in self.heads:
            return
        self.log[-1] += f" {name} from {source}"
        self.graph.create_branch(name, from_=source)
        self.heads[name] = commit

    def merge(self) -> None:
        if len(self.heads) < 2:
            return
        source, into = self.rng.sample(sorted(self.heads), 2)
        strategy: Any = self.rng.choice(["fail", "ours", "theirs"])
        self.log[-1] += f" {source} into {into}, {strategy}"
        left, right = (self.ancestors(self.heads[name]) for name in (source, into))
        common = left & right
        best = common - {parent for name in common for parent in self.commits[name].parents}
        if len(best) > 1:
            self.log[-1] += ": skipped, several bases"
            return
        if self.heads[source] in right:
            self.expect("the outcome", self.graph.merge(source, into).outcome, "already_up_to_date")
            return
        base = self.commits[best.pop()].tables
        merged, conflicts = merge_tables(base, self.state(source), self.state(into), theirs=strategy == "theirs")
        if strategy == "fail" and conflicts:
            try:
                self.graph.merge(source, into)
            except MergeConflictError:
                return
            raise Disagreement("\n".join([*self.log, f"merged, and should conflict: {conflicts}"]))
        self.graph.merge(source, into, strategy=strategy)
        self.record(into, merged, self.heads[source])

    def delete_branch(self) -> None:
        others = sorted(self.heads.keys() - {"main"})
        if not others:
            return
        name = self.rng.choice(others)
        self.log[-1] += f" {name}"
        try:
            self.graph.delete_branch(name)
        except BranchError:  # it has children or tags
            return
        del self.heads[name]
        alive = set().union(*(self.first_parents(head) for head in self.heads.values())) | set(self.tags.values())
        self.promised &= alive

    def first_parents(self, commit: str) -> list[str]:
        found = [commit]
        while self.commits[found[-1]].parents:
            found.append(self.commits[found[-1]].parents[0])
        return found

    def tag(self) -> None:
        branch = self.branch()
        self.made += 1
        name = f"t{self.made}"
        self.log[-1] += f" {name} on {branch}"
        self.graph.tag(name, branch)
        self.tags[name] = self.heads[branch]
        if len(self.tags) > 2:
            gone = self.rng.choice(sorted(self.tags))
            self.graph.delete_tag(gone)
            del self.tags[gone]

    def clean(self) -> None:
        keep = self.rng.randrange(1, 4)
        self.log[-1] += f" {keep}"
        self.graph.cleanup(keep=keep, older_than="0s", dry_run=False)
        kept = set(self.tags.values())
        for head in self.heads.values():
            kept |= set(self.first_parents(head)[:keep])
        self.promised &= kept

    def optimize(self) -> None:
        branch = self.branch()
        self.log[-1] += f" {branch}"
        self.graph.optimize(branch)
        self.record(branch, self.state(branch))

    def compact_manifest(self) -> None:
        """What a publish does after some dozen commits."""
        from ontologia.omnigraph.names import MANIFEST

        self.graph._graph.datasets.open(MANIFEST).optimize.compact_files()

    def reopen(self, mode: OpenMode = OpenMode.READ_WRITE) -> None:
        self.graph = Omnigraph.open(self.uri, types=self.shape.types(), mode=mode)

    def crash(self) -> None:
        branch, at = self.branch(), self.rng.choice("ABCD")
        change, tables = self.draw_change(branch)
        self.log[-1] += f" {branch} at {at}"

        def die(name: str, about: str) -> None:
            if name == at:
                raise Killed

        self.graph._graph.step = die
        try:
            change(branch)
        except Killed:
            self.reopen()
        else:  # there was nothing to write
            self.reopen()
            self.expect("a write that did nothing", self.state(branch), tables)
            return
        self.record(branch, tables if at in "CD" else self.state(branch))

    def migrate(self) -> None:
        if len(self.heads) > 1:
            return
        shapes = [
            Shape("years" if self.shape.age == "age" else "age", self.shape.note, self.shape.city),
            Shape(self.shape.age, not self.shape.note, self.shape.city),
            Shape(self.shape.age, self.shape.note, {None: "City", "City": "Town", "Town": None}[self.shape.city]),
        ]
        shape = self.rng.choice(shapes)
        self.log[-1] += f" to {shape}"
        tables = {key: dict(rows) for key, rows in self.state("main").items()}
        if shape.note and not self.shape.note:
            tables[PERSON] = {id: {**row, "note": ""} for id, row in tables.get(PERSON, {}).items()}
        if self.shape.note and not shape.note:
            tables[PERSON] = {
                id: {name: value for name, value in row.items() if name != "note"}
                for id, row in tables.get(PERSON, {}).items()
            }
        if shape.city is None:
            tables.pop(CITY, None)
        self.graph.apply_schema(shape.types(self.shape), allow_data_loss=True)
        self.shape = shape
        self.record("main", {key: rows for key, rows in tables.items() if rows})

    # --- what must hold ---

    def check(self) -> None:
        self.expect("branches", sorted(it.name for it in self.graph.branches()), sorted(self.heads))
        for branch, head in self.heads.items():
            self.expect(f"branch {branch}", self.read(branch, self.shape), self.commits[head].tables)
            found = {record.graph_commit_id for record in self.graph.commits(branch)}
            self.expect(f"the log of {branch}", found, self.ancestors(head))
            self.check_lookup(branch)
        for name, commit in self.tags.items():
            self.expect(f"tag {name}", self.read(name, self.commits[commit].shape), self.commits[commit].tables)
        for commit in self.promised:
            self.expect(f"commit {commit}", self.read(commit, self.commits[commit].shape), self.commits[commit].tables)
        known = set().union(*(self.ancestors(head) for head in self.heads.values()))
        others = sorted(known - self.promised)
        for commit in self.rng.sample(others, min(2, len(others))):
            self.check_unpromised(commit)
        self.check_diff()

    def check_lookup(self, branch: str) -> None:
        """A filter on an indexed field gives what the rows say."""
        person = self.shape.types()[0]
        root = self.graph.query(branch=branch).entities(person)  # type: ignore[type-var]
        found = sorted(it.name for it in root.where(getattr(person, self.shape.age) == 2).collect())  # type: ignore[attr-defined]
        rows = self.state(branch).get(PERSON, {})
        self.expect(f"ages of 2 on {branch}", found, sorted(name for name, row in rows.items() if row["age"] == 2))

    def check_unpromised(self, commit: str) -> None:
        """What may have been cleaned up is right, or said to be gone."""
        try:
            found = self.read(commit, self.commits[commit].shape)
        except HistoryGapError:
            return
        self.expect(f"the old commit {commit}", found, self.commits[commit].tables)

    def check_diff(self) -> None:
        chain = [it for it in self.first_parents(self.heads["main"]) if it in self.promised]
        states = chain if self.rng.random() < 0.5 else sorted(self.heads.values())
        a, b = self.rng.choice(states), self.rng.choice(states)
        left, right = self.commits[a], self.commits[b]
        expected = set()
        for key in left.tables.keys() | right.tables.keys():
            before, after = left.tables.get(key, {}), right.tables.get(key, {})
            for name in before.keys() | after.keys():
                if before.get(name) != after.get(name):
                    op = "insert" if name not in before else ("delete" if name not in after else "update")
                    expected.add((op, key, name))
        found = {
            (it.op, (right.shape if it.after is not None else left.shape).first_name(it.table_key), it.id)
            for it in self.graph.diff(a, b)
        }
        self.expect(f"the diff of {a} and {b}", found, expected)

    def read(self, reference: str, shape: Shape) -> Tables:
        """All rows of a state, under first names."""
        stored = StoredSnapshot(self.graph._graph, resolve(self.graph._graph, reference))
        found: Tables = {}
        for key in stored.manifest.pins:
            rows: dict[str, Row] = {
                row.pop("id"): {"age" if name == shape.age else name: value for name, value in row.items()}
                for row in stored.read(key).to_pylist()
            }
            if rows:
                found[shape.first_name(key)] = rows
        return found


def merge_tables(base: Tables, source: Tables, target: Tables, *, theirs: bool) -> tuple[Tables, list[str]]:
    """Three-way, row by row; then edges have their ends. What was in conflict is named."""
    merged: Tables = {}
    conflicts = []
    winner = source if theirs else target
    for key, name in sorted(set(_ids(base)) | set(_ids(source)) | set(_ids(target))):
        was, left, right = (side.get(key, {}).get(name) for side in (base, source, target))
        value = right if left in (was, right) else left
        if was != left != right != was:
            conflicts.append(f"{key} {name}")
            value = winner.get(key, {}).get(name)
        if value is not None:
            merged.setdefault(key, {})[name] = value
    people = merged.setdefault(PERSON, {})
    for id, row in list(merged.get(KNOWS, {}).items()):
        missing = [end for end in (row["src"], row["dst"]) if end not in people]
        if missing:
            conflicts.append(f"{KNOWS} {id}")
        for end in missing:
            if end in winner.get(PERSON, {}):
                people[end] = winner[PERSON][end]
            else:
                merged[KNOWS].pop(id, None)
    return {key: rows for key, rows in merged.items() if rows}, conflicts


def _ids(tables: Tables) -> Iterator[tuple[str, str]]:
    return ((key, name) for key, rows in tables.items() for name in rows)


def soak_seed(seed: int, steps: int = STEPS) -> int:
    """One random life of a graph. Returns how many checks were made."""
    with tempfile.TemporaryDirectory(prefix="ontologia-graph-") as folder:
        model = GraphModel(Random(f"graph {seed}"), f"{folder}/graph")
        for _ in range(steps):
            try:
                model.step()
            except Disagreement:
                raise
            except Exception as problem:
                lines = "\n".join(model.log)
                raise Disagreement(f"{lines}\n\n{type(problem).__name__}: {problem}") from problem
        return model.checks
