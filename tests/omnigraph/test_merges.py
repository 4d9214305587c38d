"""Merges against a plain-Python model: every pair of operations, strategies, orphans, and random histories."""

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ontologia.errors import BranchError, MergeConflictError, ValidationError
from ontologia.omnigraph import branches, cleanup, history, maintenance
from ontologia.omnigraph.merge import merge
from ontologia.omnigraph.mutation import Checks
from support.graph_shop import KNOWS, PERSON, contents, drift, killed, knows, new_graph, people, put, reopened

# What a side may do to a row, given what the base has (None: no row); the result, or SAME for no change.
OPERATIONS = {
    "none": lambda base: [],
    "insert": lambda base: [5],
    "update same": lambda base: [7],
    "update different": lambda base: [8],
    "delete": lambda base: ["delete"],
    "delete and insert again": lambda base: ["delete", 9],
}
POSSIBLE = {True: [name for name in OPERATIONS if name != "insert"], False: ["none", "insert", "update different"]}


def merged_value(base, source, target):
    """The three-way rule, as a person would say it: the value, or the kind of conflict."""
    if source in (base, target):
        return target
    if target == base:
        return source
    if base is None:
        return "DivergentInsert"
    return "DeleteVsUpdate" if None in (source, target) else "DivergentUpdate"


def rows_of(kind, values):
    if kind == PERSON:
        return {PERSON: {name: people(**{name: age})[name] for name, age in values.items()}}
    return {KNOWS: {name: {"id": name, "src": "x", "dst": "y", "since": since} for name, since in values.items()}}


def value_of(kind, row):
    return None if row is None else row["age" if kind == PERSON else "since"]


@pytest.mark.parametrize("kind", [PERSON, KNOWS])
def test_every_pair_of_operations_merges_as_the_model_says(root, kind):
    """One row per pair of operations: twenty-five on rows of the base, nine on rows that it has not."""
    cases = {}
    for existed in (True, False):
        for pair in itertools.product(POSSIBLE[existed], repeat=2):
            cases[f"r{len(cases):02}"] = (1 if existed else None, *pair)
    graph = new_graph(root)
    ends = {PERSON: people(x=0, y=0)}
    put(graph, ends)
    put(graph, rows_of(kind, {name: base for name, (base, *_) in cases.items() if base is not None}))
    branches.create_branch(graph, "source")
    after = {"source": {}, "main": {}}
    for side, branch in enumerate(("source", "main")):
        for step in range(2):
            written, deleted = {}, []
            for name, (base, *pair) in cases.items():
                actions = OPERATIONS[pair[side]](base)
                after[branch].setdefault(name, base)
                if step < len(actions):
                    deleted += [name] if actions[step] == "delete" else []
                    written |= {} if actions[step] == "delete" else {name: actions[step]}
                    after[branch][name] = None if actions[step] == "delete" else actions[step]
            put(graph, rows_of(kind, written), {kind: deleted}, branch=branch)
    expected = {n: merged_value(base, after["source"][n], after["main"][n]) for n, (base, *_) in cases.items()}
    conflicts = {name: value for name, value in expected.items() if isinstance(value, str)}
    with pytest.raises(MergeConflictError) as caught:
        merge(graph, "source")
    assert {conflict.id: conflict.kind for conflict in caught.value.conflicts} == conflicts
    for conflict in caught.value.conflicts:
        base = cases[conflict.id][0]
        sides = [value_of(kind, row) for row in (conflict.base, conflict.source, conflict.target)]
        assert sides == [base, after["source"][conflict.id], after["main"][conflict.id]]
    for strategy, winner in (("ours", "main"), ("theirs", "source")):
        branches.create_branch(graph, f"into-{strategy}")
        merge(graph, "source", f"into-{strategy}", strategy=strategy)
        found = contents(graph, f"into-{strategy}").get(kind, {})
        wanted = {n: after[winner][n] if n in conflicts else value for n, value in expected.items()}
        assert {n: value_of(kind, found.get(n)) for n in cases} == wanted


# --- outcomes ---


@pytest.fixture
def forked(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1, b=2, c=3), KNOWS: knows("ab")})
    branches.create_branch(graph, "dev")
    return graph


def test_outcomes_are_up_to_date_fast_forward_and_merged(forked):
    assert merge(forked, "dev").outcome == "already_up_to_date"
    put(forked, {PERSON: people(a=5)}, branch="dev")
    assert merge(forked, "dev").outcome == "fast_forward"
    put(forked, {PERSON: people(b=6)}, branch="dev")
    put(forked, {PERSON: people(c=7)})
    assert merge(forked, "dev").outcome == "merged"
    assert contents(forked)[PERSON] == people(a=5, b=6, c=7)


def test_a_merge_is_one_commit_with_both_parents(forked):
    ours = put(forked, {PERSON: people(c=7)})
    theirs = put(forked, {PERSON: people(a=5)}, branch="dev")
    before = forked.manifest().version
    commit = merge(forked, "dev", actor="ann").commit
    assert (commit.parent_commit_id, commit.merged_parent_commit_id) == (ours.graph_commit_id, theirs.graph_commit_id)
    assert forked.manifest().version == before + 1
    assert commit.actor_id == "ann"


def test_a_dry_run_says_what_would_happen_and_writes_nothing(forked):
    put(forked, {PERSON: people(a=5)}, {KNOWS: ["ab"]}, branch="dev")
    before = forked.manifest().version
    report = merge(forked, "dev", dry_run=True)
    assert (report.outcome, report.written, report.deleted) == ("fast_forward", {PERSON: 1}, {KNOWS: 1})
    assert forked.manifest().version == before


def test_a_conflict_leaves_both_branches_as_they_were(forked):
    put(forked, {PERSON: people(a=5)}, branch="dev")
    put(forked, {PERSON: people(a=6)})
    before = contents(forked), contents(forked, "dev"), forked.manifest().version
    with pytest.raises(MergeConflictError, match="DivergentUpdate"):
        merge(forked, "dev")
    assert (contents(forked), contents(forked, "dev"), forked.manifest().version) == before


def test_null_and_the_empty_text_are_different(forked):
    row = {"id": "a", "age": 1, "name": None}
    put(forked, {PERSON: {"a": row}}, branch="dev")
    put(forked, {PERSON: {"a": row | {"name": ""}}})
    with pytest.raises(MergeConflictError):
        merge(forked, "dev")


def test_a_deleted_edge_does_not_return_by_a_sibling_merge(forked):
    branches.create_branch(forked, "sibling")
    put(forked, {}, {KNOWS: ["ab"]}, branch="dev")
    put(forked, {PERSON: people(c=9)}, branch="sibling")
    merge(forked, "dev")
    merge(forked, "sibling")
    assert KNOWS not in contents(forked)


def test_a_child_branch_reads_on_after_its_parent_was_fast_forwarded(forked):
    put(forked, {PERSON: people(a=5)}, branch="dev")
    branches.create_branch(forked, "child", "dev")
    merge(forked, "dev")
    put(forked, {PERSON: people(b=6)}, branch="child")
    assert contents(forked, "child")[PERSON] == people(a=5, b=6, c=3)
    merge(forked, "child")
    assert contents(forked)[PERSON] == people(a=5, b=6, c=3)


def test_a_reload_of_everything_merges(forked):
    everything = {PERSON: people(a=1, b=2, c=3), KNOWS: knows("ab")}
    put(forked, everything, branch="dev")
    merge(forked, "dev")
    assert contents(forked) == everything


def test_a_compaction_on_one_side_is_no_change(forked):
    put(forked, {PERSON: people(a=4)})
    put(forked, {PERSON: people(a=5)})
    put(forked, {PERSON: people(b=6)}, branch="dev")
    maintenance.optimize(forked)
    report = merge(forked, "dev")
    assert report.written == {PERSON: 1}
    assert contents(forked)[PERSON] == people(a=5, b=6, c=3)


def test_a_type_that_only_the_branch_has_comes_along(root):
    graph = new_graph(root)
    put(graph, {PERSON: people(a=1, b=2)})
    branches.create_branch(graph, "dev")
    put(graph, {KNOWS: knows("ab")}, branch="dev")
    merge(graph, "dev")
    put(graph, {KNOWS: knows("ba")})
    assert contents(graph)[KNOWS] == knows("ab", "ba")
    assert drift(graph) == {}


@pytest.mark.parametrize("deleting", ["source", "target"])
def test_an_edge_whose_node_the_other_side_deleted_is_a_conflict_that_a_strategy_decides(root, deleting):
    other = {"source": "main", "target": "dev"}[deleting]
    sides = {"source": "dev", "target": "main"}
    for strategy in ("fail", "ours", "theirs"):
        graph = new_graph(f"{root}/{strategy}")
        put(graph, {PERSON: people(a=1, b=2), KNOWS: {}})
        branches.create_branch(graph, "dev")
        put(graph, {}, {PERSON: ["b"]}, branch=sides[deleting])
        put(graph, {KNOWS: knows("ab")}, branch=other)
        if strategy == "fail":
            with pytest.raises(MergeConflictError, match="OrphanEdge"):
                merge(graph, "dev")
            continue
        merge(graph, "dev", strategy=strategy)
        found = contents(graph)
        edge_stays = (deleting == "source") == (strategy == "ours")
        assert (KNOWS in found, "b" in found[PERSON]) == (edge_stays, edge_stays)


@pytest.mark.parametrize(
    ("source", "into", "strategy", "said"),
    [
        ("nope", "main", "fail", "no branch 'nope'"),
        ("dev", "nope", "fail", "no branch 'nope'"),
        ("dev", "dev", "fail", "into itself"),
        ("dev", "main", "luck", "strategy is"),
        ("__schema_apply_lock__", "main", "fail", "internal"),
    ],
)
def test_a_merge_that_means_nothing_is_refused(forked, source, into, strategy, said):
    with pytest.raises((BranchError, ValidationError), match=said):
        merge(forked, source, into, strategy=strategy)


# --- random histories ---


class Histories(RuleBasedStateMachine):
    """Branches as dicts, and snapshots of them at each commit for the base of a merge."""

    names = st.sampled_from("abcdef")

    @initialize(folder=st.uuids())
    def start(self, folder):
        import tempfile

        self.folder = tempfile.TemporaryDirectory(prefix="ontologia-graph-")
        self.graph = new_graph(f"file://{self.folder.name}/{folder}")
        put(self.graph, {PERSON: people(a=0)})
        self.states = {"main": {"a": 0}}
        self.lineage = {"main": [0]}
        self.commits = [({"a": 0}, ())]

    def commit(self, branch, state, *parents):
        self.states[branch] = state
        self.commits.append((state, (self.lineage[branch][-1], *parents)))
        self.lineage[branch] = [*self.lineage[branch], len(self.commits) - 1]

    @rule(data=st.data(), ages=st.dictionaries(names, st.integers(1, 3), max_size=3), gone=st.sets(names, max_size=2))
    def write(self, data, ages, gone):
        branch = data.draw(st.sampled_from(sorted(self.states)))
        gone = {name for name in gone - ages.keys() if name in self.states[branch]}
        done = put(self.graph, {PERSON: people(**ages)}, {PERSON: sorted(gone)}, branch=branch, checks=Checks())
        if done is not None:
            kept = {name: age for name, age in self.states[branch].items() if name not in gone}
            self.commit(branch, kept | ages)

    @precondition(lambda self: len(self.states) < 3)
    @rule(data=st.data())
    def fork(self, data):
        source = data.draw(st.sampled_from(sorted(self.states)))
        name = f"b{len(self.commits)}-{len(self.lineage)}"
        branches.create_branch(self.graph, name, source)
        self.states[name], self.lineage[name] = dict(self.states[source]), list(self.lineage[source])

    def ancestors(self, number):
        found, queue = set(), [number]
        while queue:
            number = queue.pop()
            if number not in found:
                found.add(number)
                queue += self.commits[number][1]
        return found

    @precondition(lambda self: len(self.states) > 1)
    @rule(data=st.data(), strategy=st.sampled_from(["fail", "ours", "theirs"]))
    def join(self, data, strategy):
        source, into = data.draw(st.permutations(sorted(self.states)))[:2]
        heads = [self.lineage[name][-1] for name in (source, into)]
        common = self.ancestors(heads[0]) & self.ancestors(heads[1])
        best = common - {older for one in common for older in self.ancestors(one) - {one}}
        if len(best) > 1:
            return  # crossed merges have several bases, and any of them may be taken
        base = self.commits[best.pop()][0]
        if heads[0] in self.ancestors(heads[1]):
            assert merge(self.graph, source, into).outcome == "already_up_to_date"
            return
        ours, theirs = self.states[into], self.states[source]
        names = base.keys() | ours.keys() | theirs.keys()
        values = {n: merged_value(base.get(n), theirs.get(n), ours.get(n)) for n in names}
        if strategy == "fail" and any(isinstance(value, str) for value in values.values()):
            with pytest.raises(MergeConflictError):
                merge(self.graph, source, into)
            return
        merge(self.graph, source, into, strategy=strategy)
        winner = ours if strategy == "ours" else theirs
        state = {n: winner.get(n) if isinstance(v, str) else v for n, v in values.items()}
        self.commit(into, {n: v for n, v in state.items() if v is not None}, heads[0])

    @rule(keep=st.integers(1, 3))
    def clean(self, keep):
        cleanup.cleanup(self.graph, keep, "0s", dry_run=False)

    @rule()
    def compact(self):
        maintenance.optimize(self.graph)
        self.commits.append((self.states["main"], (self.lineage["main"][-1],)))
        if len(list(self.graph.commits())) and self.graph.manifest().head.details["kind"] == "Optimize":
            self.lineage["main"] = [*self.lineage["main"], len(self.commits) - 1]

    @rule(step=st.sampled_from(["B", "C", "D"]))
    def die_and_reopen(self, step):
        died = killed(self.graph, step, None, lambda: put(self.graph, {PERSON: people(f=9)}))
        self.graph = reopened(self.graph)
        assert died
        if step != "B":
            self.commit("main", self.states["main"] | {"f": 9})
        else:
            self.commit("main", dict(self.states["main"]))

    @invariant()
    def every_branch_is_as_the_model_says(self):
        if not hasattr(self, "states"):
            return
        for branch, state in self.states.items():
            assert contents(self.graph, branch).get(PERSON, {}) == people(**state)

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


Histories.TestCase.settings = settings(
    max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestHistories = pytest.mark.thorough(Histories.TestCase)


class LongHistories(Histories):
    """The same, for longer."""


LongHistories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLongHistories = pytest.mark.slow(LongHistories.TestCase)


def test_a_diff_has_before_and_after_of_every_change(forked):
    put(forked, {PERSON: people(a=5, d=4)}, {PERSON: ["c"]}, branch="dev")
    found = history.diff(forked, forked.manifest(), forked.manifest("dev"))
    assert [(it.op, it.id, it.before and it.before["age"], it.after and it.after["age"]) for it in found] == [
        ("update", "a", 1, 5),
        ("delete", "c", 3, None),
        ("insert", "d", None, 4),
    ]
    assert found.stats == {"inserts": 1, "updates": 1, "deletes": 1, "types_affected": 1}
    assert len(history.diff(forked, forked.manifest(), forked.manifest("dev"), ops=["delete"])) == 1
