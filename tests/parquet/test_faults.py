"""A fault at every single request of every operation: readers see the old state or the new one, and the next writer heals.

The steps are recorded once and then met one by one. What an operation says afterwards must be true: one that returned
has happened, one that raised has not, unless it raised `CommitOutcomeUnknownError`.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ontologia.engines.parquet import paths
from ontologia.engines.repository import Repository
from ontologia.errors import CommitOutcomeUnknownError, OntologiaError
from ontologia.objects import Objects, open_objects
from ontologia.objects.proof import _proven
from ontologia.runtime.drop import DropPreview
from ontologia.testing.s3server import S3Server
from ontologia.testing.stores import FaultyObjects, ManualClock, SimulatedCrash, Step
from support.parquet_shop import (
    AheadClock,
    Bought,
    Customer,
    CustomerWithEmail,
    Product,
    Rated,
    Shop,
    attempts,
    commit,
    committed_attempts,
    latest,
)

pytestmark = pytest.mark.thorough

Latest = dict[str, dict[str, dict[str, Any]]]
Fault = Callable[[FaultyObjects, int], None]
READS = {"get", "get_range", "head", "list", "exists"}


@dataclass(frozen=True)
class Operation:
    """What is done, on which store, and what it does to the current rows."""

    name: str
    run: Callable[[Shop, Repository], object]
    effect: Callable[[Latest], Latest] = lambda rows: rows
    prepare: Callable[[Shop], None] = lambda shop: None
    filled: bool = True
    commits: bool = True

    def __str__(self) -> str:
        return self.name


def ours(*rows: Any) -> Callable[[Shop, Repository], object]:
    return lambda shop, repository: commit(repository, rows, who="ours")


def with_rows(type_name: str, **rows: dict[str, Any]) -> Callable[[Latest], Latest]:
    return lambda before: {**before, type_name: {**before.get(type_name, {}), **rows}}


def row(obj: Any) -> dict[str, Any]:
    return dict(obj.__dict__)


def migrate(shop: Shop, repository: Repository) -> object:
    session = shop.session(CustomerWithEmail, Product, repository=repository)
    return session.migrate(dry_run=False, force=True, meta={"who": "ours"})


def migrated(before: Latest) -> Latest:
    return {**before, "Customer": {key: {**fields, "email": "none"} for key, fields in before["Customer"].items()}}


def drop(*, purge: bool) -> Callable[[Shop, Repository], object]:
    def run(shop: Shop, repository: Repository) -> object:
        session = shop.session(repository=repository)
        plan = session.drop_types(relations=["Rated"], purge_history=purge)
        assert isinstance(plan, DropPreview)
        return session.drop_types(relations=["Rated"], purge_history=purge, dry_run=False, token=plan.token)

    return run


def dropped(before: Latest) -> Latest:
    return {name: rows for name, rows in before.items() if name != "Rated"}


def break_indices(shop: Shop) -> None:
    shop.objects.delete(paths.index(Customer.__declaration__.ref))
    stale = shop.objects.get(paths.index(Product.__declaration__.ref)).data
    shop.commit([Product(sku="p9"), Customer(id="c9", name="Nina")])
    shop.objects.put(paths.index(Product.__declaration__.ref), stale)


def leave_litter(shop: Shop) -> None:
    """An attempt that died, a snapshot that was replaced, and a lock that nobody holds any more."""
    with shop.using() as repository:
        repository.compact(apply=True)
        commit(repository, [Customer(id="c1", name="Alice", age=50)])
        repository.compact(apply=True)
        repository.engine.locks.acquire("nightly", "somebody", 1)
    faulty = FaultyObjects(shop.objects)
    faulty.crash(operation="put_if_match", key=paths.HEAD)
    with pytest.raises(SimulatedCrash):
        shop.commit([Customer(id="dead", name="Dead")], objects=faulty, keep_alive=False)
    shop.objects.delete(paths.lock())  # its lease is over: nobody waits for it
    time.sleep(0.002)


def remove(shop: Shop, repository: Repository) -> object:
    """The first removals of a store, which also stamp it."""
    session = shop.session(repository=repository)
    session.remove(Customer, "c1")
    session.remove(Rated, ("c1", "p1", "2024"))
    session.ensure(Customer(id="c2", name="Bob", age=7))
    return session.commit(meta={"who": "ours"})


def removed(before: Latest) -> Latest:
    rated = {key: fields for key, fields in before["Rated"].items() if key != "c1/p1/2024"}
    return {**before, "Customer": {"c2": row(Customer(id="c2", name="Bob", age=7))}, "Rated": rated}


later = [Customer(id="c1", name="Alice", tier="gold", age=32), Customer(id="c3", name="Carol")]
several = [Customer(id="c3", name="Carol"), Product(sku="p2", price=2.5), Bought(left_key="c3", right_key="p2")]

OPERATIONS = [
    Operation(
        "the first commit of a store",
        ours(Customer(id="c1", name="Alice")),
        with_rows("Customer", c1=row(Customer(id="c1", name="Alice"))),
        filled=False,
    ),
    Operation("a later commit", ours(*later), with_rows("Customer", c1=row(later[0]), c3=row(later[1]))),
    Operation(
        "a commit of three types",
        ours(*several),
        lambda before: with_rows("Bought", **{"c3/p2/": {**row(several[2]), "instance_key": ""}})(
            with_rows("Product", p2=row(several[1]))(with_rows("Customer", c3=row(several[0]))(before))
        ),
    ),
    Operation("removals", remove, removed),
    Operation("a migration", migrate, migrated),
    Operation("a drop", drop(purge=False), dropped),
    Operation("a drop with its history", drop(purge=True), dropped),
    Operation("compaction", lambda shop, repository: repository.compact(apply=True), commits=False),
    Operation(
        "index repair",
        lambda shop, repository: repository.index_repair(apply=True),
        prepare=break_indices,
        commits=False,
    ),
    Operation(
        "vacuum of compacted files",
        lambda shop, repository: repository.vacuum(0, apply=True, compacted=True),
        prepare=leave_litter,
        commits=False,
    ),
    Operation("vacuum", lambda shop, repository: repository.vacuum(0, apply=True), prepare=leave_litter, commits=False),
]


def lose_request(faulty: FaultyObjects, step: int) -> None:
    faulty.lose_request(at=step)


def lose_response(faulty: FaultyObjects, step: int) -> None:
    faulty.lose_response(at=step)


def crash_before(faulty: FaultyObjects, step: int) -> None:
    faulty.crash(at=step, when="before")


def crash_after(faulty: FaultyObjects, step: int) -> None:
    faulty.crash(at=step, when="after")


# Who dies after a request leaves what dying before the next one leaves: the quick run needs one of them.
FAULTS = [lose_request, lose_response, crash_before, pytest.param(crash_after, marks=pytest.mark.slow)]


class Scene:
    """One operation on a store of its own; the same start for every step."""

    def __init__(self, operation: Operation, version: str, folder: Path) -> None:
        self.operation = operation
        self.base = Shop.create(
            open_objects(f"memory://{uuid.uuid4().hex}/base"), version, folder / "cache", filled=operation.filled
        )
        operation.prepare(self.base)
        with self.base.using() as repository:
            self.rows = latest(repository)
            self.commits = repository.engine.commits()

    def steps(self) -> list[Step]:
        shop = self.base.copy()
        faulty = FaultyObjects(shop.objects)
        return faulty.steps_of(lambda: self.attempt(shop, faulty))

    def attempt(self, shop: Shop, faulty: Objects, **how: Any) -> BaseException | None:
        """Run the operation; what it raised, if it did."""
        if self.operation.filled:
            _proven.add(faulty.identity)  # the first commit of a process does it, which has its own tests
        how = {"keep_alive": False, "s3_request_timeout_s": 0.2} | how
        try:
            with shop.using(faulty, **how) as repository:
                self.operation.run(shop, repository)
        except (OntologiaError, SimulatedCrash) as problem:
            return problem
        return None

    def check(self, shop: Shop, problem: BaseException | None, where: str) -> None:
        """A reader sees old or new, an answer was true, and the next writer finds nothing in its way."""
        with shop.using(clock=AheadClock(3_600)) as repository:
            known = {commit.id for commit in self.commits}
            added = [commit for commit in reversed(repository.engine.commits()) if commit.id not in known]
            mine = [commit for commit in added if commit.metadata.get("who") != "rival"]
            if self.operation.commits and problem is None:
                assert len(mine) == 1, f"{where}: it said it was committed, and is not there"
            elif isinstance(problem, OntologiaError) and not isinstance(problem, CommitOutcomeUnknownError):
                assert not mine, f"{where}: it said it failed ({problem}), and is there"
            assert len(mine) <= 1, where
            expected = self.rows
            for entry in added:
                expected = (
                    with_rival(expected) if entry.metadata.get("who") == "rival" else self.operation.effect(expected)
                )
            assert latest(repository) == expected, where
        with shop.using(clock=AheadClock(3_600)) as repository:
            self.heal(shop, repository, expected, where)

    def fail_at_every_request(self, fault: Fault) -> None:
        for step in self.steps():
            if fault is not lose_request and step.request.operation in READS:
                continue  # an answer lost is a question lost, and who dies before a read dies before the next write
            shop = self.base.copy()
            faulty = FaultyObjects(shop.objects)
            fault(faulty, step.number)
            problem = self.attempt(shop, faulty)
            self.check(shop, problem, f"{self.operation} with {fault.__name__} at {step.request}")

    def heal(self, shop: Shop, repository: Repository, expected: Latest, where: str) -> None:
        assert commit(repository, [Product(sku="next")]) is not None, where
        assert repository.engine.warnings == [], where
        assert repository.index_verify().healthy, where
        expected = with_rows("Product", next=row(Product(sku="next")))(expected)
        repository.vacuum(0, apply=True)
        assert attempts(shop.objects) == committed_attempts(repository), where
        assert latest(repository) == expected, where


def with_rival(before: Latest) -> Latest:
    return with_rows("Product", rival=row(Product(sku="rival")))(before)


REPEATS = (
    "a commit of three types",
    "a drop",
    "vacuum",
)  # a later commit, the drop with its history and the vacuum with more
QUICK = [pytest.param(o, marks=pytest.mark.slow) if o.name in REPEATS else o for o in OPERATIONS]


@pytest.fixture(params=QUICK, ids=str)
def operation(request: pytest.FixtureRequest) -> Operation:
    found: Operation = request.param
    return found


@pytest.fixture
def scene(operation: Operation, version: str, tmp_path: Path) -> Scene:
    if operation.run is remove and version == "v1":
        pytest.skip("engine v1 keeps every row")
    return Scene(operation, version, tmp_path)


@pytest.fixture(params=["v2", pytest.param("v1", marks=pytest.mark.slow)])
def version(request: pytest.FixtureRequest) -> str:
    """The protocol is the same in both engines, so that the quick run needs one of them."""
    return str(request.param)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.replace("_", " "))
def test_after_a_fault_at_any_request_the_state_is_old_or_new_and_the_next_writer_heals(
    scene: Scene, fault: Fault
) -> None:
    scene.fail_at_every_request(fault)


@pytest.mark.parametrize("fault", [lose_response, crash_before], ids=lambda fault: fault.__name__.replace("_", " "))
def test_a_commit_to_v1_survives_a_fault_at_any_request(tmp_path: Path, fault: Fault) -> None:
    """The quick run has this much of v1; the rest of it is slow."""
    scene = Scene(OPERATIONS[0], "v1", tmp_path)
    scene.fail_at_every_request(fault)


@pytest.mark.parametrize("rival", [False, True], ids=["alone", "with a rival"])
@pytest.mark.slow_on("alone", "a drop with its history-v2", "vacuum of compacted files-v2")
def test_after_a_delay_past_the_lease_at_any_request_the_state_is_old_or_new_and_the_next_writer_heals(
    scene: Scene, rival: bool
) -> None:
    for step in scene.steps():
        shop = scene.base.copy()
        faulty = FaultyObjects(shop.objects)
        clock = ManualClock(time.time())
        _proven.add(shop.objects.identity)  # the rival runs in the middle of our own proof

        def stall(_: object, shop: Shop = shop, clock: ManualClock = clock) -> None:
            clock.now += 100
            if rival:
                with shop.using(clock=AheadClock(3_600)) as other:
                    commit(other, [Product(sku="rival")], who="rival")

        faulty.call(stall, at=step.number)
        problem = scene.attempt(shop, faulty, clock=clock)
        scene.check(shop, problem, f"{scene.operation} delayed at {step.request}")


# --- the same on a real server, at the requests that matter ---


@pytest.mark.s3
@pytest.mark.parametrize("key", [paths.HEAD, paths.index(Customer.__declaration__.ref), paths.lock()])
@pytest.mark.parametrize("fault", ["lose request", "lose response", "crash before", "crash after"])
def test_a_commit_on_a_bucket_survives_a_fault_at_the_requests_that_matter(
    s3: S3Server, fault: str, key: str, tmp_path: Path
) -> None:
    shop = Shop.create(open_objects(s3.uri(f"parquet-tests/{uuid.uuid4().hex}")), "v2", tmp_path / "cache")
    faulty = FaultyObjects(shop.objects)
    verb, what = fault.split()
    if verb == "lose":
        getattr(faulty, f"lose_{what}")(operation="put_if_*", key=key)
    else:
        faulty.crash(operation="put_if_match", key=key, when=what)  # type: ignore[arg-type]
    told: int | None = None
    with contextlib.suppress(SimulatedCrash):
        told = shop.commit([Customer(id="c9", name="Ida")], objects=faulty, keep_alive=False)
    with shop.using(clock=AheadClock(3_600)) as repository:
        head = repository.get_head_commit_id()
        assert head in (3, 4)
        assert ("c9" in latest(repository)["Customer"]) == (head == 4)
        assert told in (None, 4)
        assert told is None or head == 4
        assert commit(repository, [Product(sku="next")]) == head + 1
        assert repository.index_verify().healthy
