"""A checker of transaction histories: which isolation anomalies does what clients saw prove?

Clients run small transactions over lists: they read keys, and append values that nobody else appends. A list tells all
appends before it in order, so reads recover who wrote what before whom, without looking into the store. From that the
checker builds the graph of dependencies between transactions (Adya: ww, wr, rw; and real time) and names each cycle by
the weakest isolation level that forbids it. The approach is Elle's: Kingsbury and Alvaro, VLDB 2020.

    history = [Transaction("p1", [Read("x", [1]), Append("x", 2)], Outcome.COMMITTED, start=0, end=5), …]
    anomalies = check(history, final={"x": [1, 2]})
    assert not forbidden(anomalies, Level.STRICT_SERIALIZABLE)
"""

from __future__ import annotations

import enum
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise


@dataclass(frozen=True)
class Read:
    """A key was read, with these values in the order in which they were appended."""

    key: str
    values: Sequence[int]


@dataclass(frozen=True)
class Append:
    """A value, unique in the history, was appended to the list of a key."""

    key: str
    value: int


class Outcome(enum.StrEnum):
    """What the client was told about its commit."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Transaction:
    """What one client asked for and saw.

    `start` and `end` are readings of one clock that all clients share, such as `time.monotonic_ns()`.
    """

    process: str
    operations: Sequence[Read | Append]
    outcome: Outcome
    start: int
    end: int

    def __str__(self) -> str:
        done = " ".join(
            f"{op.key}+{op.value}" if isinstance(op, Append) else f"{op.key}={list(op.values)}"
            for op in self.operations
        )
        return f"{self.process}[{done}]"

    @property
    def appends(self) -> dict[str, list[int]]:
        appended: dict[str, list[int]] = defaultdict(list)
        for op in self.operations:
            if isinstance(op, Append):
                appended[op.key].append(op.value)
        return appended

    @property
    def external_reads(self) -> dict[str, Sequence[int]]:
        """The first read of each key, unless the transaction itself appended to it before: what others wrote."""
        reads: dict[str, Sequence[int]] = {}
        touched: set[str] = set()
        for op in self.operations:
            if isinstance(op, Read) and op.key not in touched:
                reads[op.key] = op.values
            touched.add(op.key)
        return reads

    def to_json(self) -> str:
        """One line of a history file."""
        operations = [
            ["append", op.key, op.value] if isinstance(op, Append) else ["read", op.key, list(op.values)]
            for op in self.operations
        ]
        return json.dumps([self.process, operations, self.outcome, self.start, self.end])

    @classmethod
    def from_json(cls, line: str) -> Transaction:
        process, operations, outcome, start, end = json.loads(line)
        parsed = [Append(key, it) if kind == "append" else Read(key, it) for kind, key, it in operations]
        return cls(process, parsed, Outcome(outcome), start, end)


class Anomaly(enum.StrEnum):
    """Adya's phenomena, and what no level allows."""

    LOST_APPEND = "lost append"  # acknowledged, and not in the final state
    DUPLICATE = "duplicate append"  # in a list twice
    TORN = "torn commit"  # one append of a transaction is there, another is not
    ABORTED_READ = "aborted read (G1a)"
    INTERMEDIATE_READ = "intermediate read (G1b)"
    INTERNAL = "own reads and writes disagree"
    ORDER = "incompatible orders"  # two reads of a key, and neither is a prefix of the other
    DIRTY_WRITE = "write cycle (G0)"
    CIRCULAR = "circular information flow (G1c)"
    NON_REPEATABLE_READ = "non-repeatable read"
    LOST_UPDATE = "lost update (P4)"
    READ_SKEW = "read skew (G-single)"
    WRITE_SKEW = "write skew (G2-item)"
    STALE_READ = "stale read (real time)"


class Level(enum.Enum):
    """Isolation levels, by the anomalies that each forbids beyond the one before it."""

    READ_COMMITTED = frozenset(
        {
            Anomaly.LOST_APPEND,
            Anomaly.DUPLICATE,
            Anomaly.TORN,
            Anomaly.ABORTED_READ,
            Anomaly.INTERMEDIATE_READ,
            Anomaly.INTERNAL,
            Anomaly.ORDER,
            Anomaly.DIRTY_WRITE,
            Anomaly.CIRCULAR,
        }
    )
    SNAPSHOT = READ_COMMITTED | {Anomaly.NON_REPEATABLE_READ, Anomaly.LOST_UPDATE, Anomaly.READ_SKEW}
    SERIALIZABLE = SNAPSHOT | {Anomaly.WRITE_SKEW}
    STRICT_SERIALIZABLE = SERIALIZABLE | {Anomaly.STALE_READ}


@dataclass(frozen=True)
class Evidence:
    """An anomaly with the transactions that prove it."""

    anomaly: Anomaly
    detail: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.detail}"


def forbidden(evidence: Iterable[Evidence], level: Level) -> list[Evidence]:
    """The anomalies that a store with this level must not show."""
    return [piece for piece in evidence if piece.anomaly in level.value]


def check(history: Sequence[Transaction], final: Mapping[str, Sequence[int]]) -> list[Evidence]:
    """Every anomaly that the history proves, given the lists of all keys after the last transaction ended."""
    evidence = [*_check_lists(history, final), *_check_inside(history)]
    orders = {key: list(values) for key, values in final.items()}
    present = {value for values in orders.values() for value in values}
    committed = [
        transaction
        for transaction in history
        if transaction.outcome is Outcome.COMMITTED
        or (transaction.outcome is Outcome.UNKNOWN and _values(transaction) & present)
    ]
    evidence += _check_commits(committed, present)
    evidence += _check_lost_updates(committed)
    if not any(piece.anomaly is Anomaly.ORDER for piece in evidence):  # without one order there are no dependencies
        evidence += _check_cycles(committed, orders)
    return evidence


def _values(transaction: Transaction) -> set[int]:
    return {op.value for op in transaction.operations if isinstance(op, Append)}


def _check_lists(history: Sequence[Transaction], final: Mapping[str, Sequence[int]]) -> Iterator[Evidence]:
    """Lists without duplicates, each a prefix of the final one, and without what was rejected or half done."""
    rejected = {
        value for transaction in history if transaction.outcome is Outcome.REJECTED for value in _values(transaction)
    }
    unfinished = {
        value: transaction
        for transaction in history
        for values in transaction.appends.values()
        for value in values[:-1]
    }
    for key, values in final.items():
        if len(set(values)) < len(values):
            yield Evidence(Anomaly.DUPLICATE, f"{key} ends as {list(values)}")
        if rejected & set(values):
            yield Evidence(
                Anomaly.ABORTED_READ, f"{key} ends with {sorted(rejected & set(values))}, which were rejected"
            )
    for transaction in history:
        for key, values in transaction.external_reads.items():
            if rejected & set(values):
                yield Evidence(Anomaly.ABORTED_READ, f"{transaction} saw {sorted(rejected & set(values))}")
            if list(values) != list(final.get(key, ()))[: len(values)]:
                yield Evidence(Anomaly.ORDER, f"{transaction}, but {key} ends as {list(final.get(key, ()))}")
            if values and values[-1] in unfinished:
                writer = unfinished[values[-1]]
                if writer is not transaction:
                    yield Evidence(Anomaly.INTERMEDIATE_READ, f"{transaction} saw {writer} half done")


def _check_inside(history: Sequence[Transaction]) -> Iterator[Evidence]:
    """A transaction reads what it read before and what it appended since."""
    for transaction in history:
        expected: dict[str, list[int]] = {}
        unread: dict[str, list[int]] = defaultdict(list)
        for op in transaction.operations:
            if isinstance(op, Append):
                if op.key in expected:
                    expected[op.key].append(op.value)
                else:
                    unread[op.key].append(op.value)
                continue
            own = unread.pop(op.key, [])
            if own and list(op.values[-len(own) :]) != own:
                yield Evidence(Anomaly.INTERNAL, f"{transaction} does not see its own appends to {op.key}")
            elif op.key in expected and list(op.values) != expected[op.key]:
                others = set(op.values) - set(expected[op.key])
                kind = Anomaly.NON_REPEATABLE_READ if others else Anomaly.INTERNAL
                yield Evidence(kind, f"{transaction} expected {op.key}={expected[op.key]}")
            expected[op.key] = list(op.values)


def _check_commits(committed: Sequence[Transaction], present: set[int]) -> Iterator[Evidence]:
    for transaction in committed:
        absent = _values(transaction) - present
        if absent:
            acknowledged = transaction.outcome is Outcome.COMMITTED and absent == _values(transaction)
            kind = Anomaly.LOST_APPEND if acknowledged else Anomaly.TORN
            yield Evidence(kind, f"{transaction} was {transaction.outcome}; {sorted(absent)} are not there")


def _check_lost_updates(committed: Sequence[Transaction]) -> Iterator[Evidence]:
    """Two transactions that read the same version of a key and both appended to it: one did not see the other."""
    updates: dict[tuple[str, tuple[int, ...]], list[Transaction]] = defaultdict(list)
    for transaction in committed:
        for key, values in transaction.external_reads.items():
            if key in transaction.appends:
                updates[key, tuple(values)].append(transaction)
    for (key, _), both in updates.items():
        for first, second in combinations(both, 2):
            yield Evidence(Anomaly.LOST_UPDATE, f"{first} and {second} both changed {key}")


@dataclass
class _Graph:
    """Dependencies between transactions, by number; each edge with the kinds it stands for."""

    size: int
    edges: dict[int, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))

    def add(self, source: int, target: int, kind: str) -> None:
        if source != target:
            self.edges[source][target].add(kind)

    def path(self, source: int, target: int, kinds: set[str]) -> list[int] | None:
        """The shortest way over edges of these kinds."""
        previous = {source: source}
        frontier = [source]
        while frontier:
            reached = []
            for node in frontier:
                for neighbour, labels in self.edges[node].items():
                    if neighbour in previous or not labels & kinds:
                        continue
                    previous[neighbour] = node
                    if neighbour == target:
                        steps = [target]
                        while steps[-1] != source:
                            steps.append(previous[steps[-1]])
                        return steps[::-1]
                    reached.append(neighbour)
            frontier = reached
        return None

    def edges_in_cycles(self, kinds: set[str]) -> list[tuple[int, int]]:
        """The edges of these kinds inside strongly connected components (Tarjan, without recursion)."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        component: dict[int, int] = {}
        stack: list[int] = []
        for root in range(self.size):
            if root in index:
                continue
            work = [(root, self._neighbours(root, kinds))]
            index[root] = low[root] = len(index)
            stack.append(root)
            while work:
                node, neighbours = work[-1]
                for neighbour in neighbours:
                    if neighbour not in index:
                        index[neighbour] = low[neighbour] = len(index)
                        stack.append(neighbour)
                        work.append((neighbour, self._neighbours(neighbour, kinds)))
                        break
                    if neighbour not in component:
                        low[node] = min(low[node], index[neighbour])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        while True:
                            member = stack.pop()
                            component[member] = node
                            if member == node:
                                break
        return [
            (source, target)
            for source, targets in list(self.edges.items())
            for target, labels in targets.items()
            if labels & kinds and component[source] == component[target]
        ]

    def _neighbours(self, node: int, kinds: set[str]) -> Iterator[int]:
        return iter([target for target, labels in self.edges[node].items() if labels & kinds])


def _check_cycles(committed: Sequence[Transaction], orders: Mapping[str, Sequence[int]]) -> Iterator[Evidence]:
    """One cycle of each kind, from the strongest claim to the weakest."""
    graph = _dependencies(committed, orders)
    ladder = [
        (Anomaly.DIRTY_WRITE, {"ww"}, {"ww"}),
        (Anomaly.CIRCULAR, {"ww", "wr"}, {"ww", "wr"}),
        (Anomaly.READ_SKEW, {"rw"}, {"ww", "wr"}),  # exactly one rw: the way back has none
        (Anomaly.WRITE_SKEW, {"rw"}, {"ww", "wr", "rw"}),
        (Anomaly.STALE_READ, {"ww", "wr", "rw"}, {"ww", "wr", "rw", "real time"}),
    ]
    for anomaly, closing, kinds in ladder:
        for source, target in graph.edges_in_cycles(kinds | closing):
            if not graph.edges[source][target] & closing:
                continue
            way = graph.path(target, source, kinds)
            if way is not None:
                steps = [source, *way]
                shown = " → ".join(
                    f"{committed[node]} {'/'.join(sorted(graph.edges[node][after]))}" for node, after in pairwise(steps)
                )
                yield Evidence(anomaly, shown)
                return


def _dependencies(committed: Sequence[Transaction], orders: Mapping[str, Sequence[int]]) -> _Graph:
    graph = _Graph(len(committed))
    writer = {value: number for number, transaction in enumerate(committed) for value in _values(transaction)}
    for values in orders.values():
        for before, after in pairwise(values):
            if before in writer and after in writer:
                graph.add(writer[before], writer[after], "ww")
    for number, transaction in enumerate(committed):
        for key, values in transaction.external_reads.items():
            if values and values[-1] in writer:
                graph.add(writer[values[-1]], number, "wr")
            following = next((value for value in list(orders.get(key, ()))[len(values) :] if value in writer), None)
            if following is not None:
                graph.add(number, writer[following], "rw")
    _add_real_time(graph, committed)
    return graph


def _add_real_time(graph: _Graph, committed: Sequence[Transaction]) -> None:
    """An edge from every transaction to those that began after it had ended, less the edges that others imply."""
    moments = [(transaction.end, 0, number) for number, transaction in enumerate(committed) if _ended(transaction)]
    moments += [(transaction.start, 1, number) for number, transaction in enumerate(committed)]
    newest: set[int] = set()  # ended, and no other that has ended began after their end
    for _, starts, number in sorted(moments):
        if starts:
            for earlier in newest:
                graph.add(earlier, number, "real time")
        else:
            newest = {other for other in newest if committed[other].end >= committed[number].start} | {number}


def _ended(transaction: Transaction) -> bool:
    """Whether its effect is known to be there at its end; an unknown outcome may take effect later."""
    return transaction.outcome is Outcome.COMMITTED
