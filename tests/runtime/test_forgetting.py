"""History before a commit is given up: what was there then, and all that came after, reads as before."""

import itertools
import os
import random
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from ontologia import (
    EngineVersionError,
    Entity,
    Field,
    ForgetRefusedError,
    HistoryForgottenError,
    Ontology,
    Relation,
    Session,
    UnfinishedCopyError,
    UninitializedStorageError,
    ValidationError,
    copy_history,
    initialize_storage,
    left,
)
from ontologia.engines.features import FORGOTTEN, KNOWN_IN_BUCKETS, Stamp
from ontologia.objects import Request
from ontologia.runtime.transfer.exporting import export_data
from support.cut_off import Fault, faults_at, is_killed

pytestmark = pytest.mark.thorough


class Page(Entity):
    path: Field[str] = Field(primary_key=True)
    title: Field[str] = Field(index=True)


class PageWithWords(Entity, name="Page"):
    path: Field[str] = Field(primary_key=True)
    title: Field[str] = Field(index=True)
    words: Field[int] = 0


class Link(Relation[Page, Page]):
    weight: Field[int] = 0


class LinkNow(Relation[PageWithWords, PageWithWords], name="Link"):
    weight: Field[int] = 0


class Note(Entity):
    id: Field[str] = Field(primary_key=True)


KEYS = ["a", "b", "c", "d"]
MIGRATION = 9


class Places:
    """Where the stores of a test are: files, or folders that are buckets."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.is_bucket = kind == "bucket"

    def new(self, name: str) -> str:
        where = (self.folder / name).as_uri() if self.is_bucket else str(self.folder / f"{name}.db")
        initialize_storage(where, engine_version="v2")
        return where

    def copy(self, where: str, name: str) -> str:
        if self.is_bucket:
            shutil.copytree(where.removeprefix("file://"), self.folder / name)
            return (self.folder / name).as_uri()
        return shutil.copy(where, self.folder / f"{name}.db")


@pytest.fixture(params=["file", "bucket"])
def places(request, tmp_path) -> Places:
    return Places(tmp_path, request.param)


@pytest.fixture
def where(places) -> str:
    """An empty store."""
    return places.new("onto")


def filled(where: str, seed: int = 0) -> str:
    """Changes, removals, rows that come again, a migration in commit 9, and a type that was dropped in commit 6."""
    chance = random.Random(seed)
    with Session(where, entity_types=[Page, Note], relation_types=[Link]) as session:
        session.ensure([*(Page(path=key, title=f"{key}0") for key in KEYS), Note(id="n")])
        session.ensure(Link(left_key="a", right_key="b"))
        session.commit()
        for step in range(1, 8):
            if step == 5:
                session.drop_types(["Note"], dry_run=False, token=session.drop_types(["Note"]).token)
                continue
            _change(session, chance, step, Page, Link)
        assert session.list_commits(1)[0]["id"] == MIGRATION - 1
    with opened(where) as onto:
        onto.migrate(dry_run=False, force=True)
        with onto.session() as session:
            for step in range(8, 13):
                _change(session, chance, step, PageWithWords, LinkNow)
    return where


def _change(session, chance, step, page, link) -> None:
    for key in chance.sample(KEYS, 2):
        session.ensure(page(path=key, title=f"{key}{step}"))
    session.remove(page, chance.choice(KEYS))
    session.ensure(link(left_key=chance.choice(KEYS), right_key=chance.choice(KEYS), weight=step))
    session.commit()


def opened(where: str) -> Ontology:
    return Ontology(where, entity_types=[PageWithWords], relation_types=[LinkNow])


def versions(rows) -> list:
    return [(row.meta().commit_id, row.meta().key, row.title, row.meta().removed) for row in rows]


def links(rows) -> list:
    ends = [(getattr(row.left, "title", None), getattr(row.right, "title", None)) for row in rows]
    return [
        (row.meta().commit_id, row.left_key, row.right_key, row.weight, end)
        for row, end in zip(rows, ends, strict=True)
    ]


def seen_from(where: str, base: int, head: int) -> list:
    """Everything that can be asked of the states from a commit on."""
    with opened(where) as onto:
        pages = onto.query().entities(PageWithWords).across_versions()
        found = onto.query().relations(LinkNow).across_versions()
        answers: list = [onto.list_commits(None, 0)[-head:]]
        for commit in range(base, head + 1):
            answers.append(versions(pages.as_of(commit).collect()))
            answers.append(links(found.as_of(commit).collect()))
            answers.append(versions(pages.history_since(commit).collect()))
            answers.append(links(found.history_since(commit).collect()))
            if commit > base:
                answers.append(onto.list_commit_changes(commit))
        plain = onto.query().entities(PageWithWords)
        answers += [versions(plain.collect()), plain.count(), links(onto.query().relations(LinkNow).collect())]
        return answers


def head_of(where: str) -> int:
    with Ontology(where) as onto:
        return onto.repository.get_head_commit_id()


def forget(where: str, before):
    with Ontology(where) as onto:
        return onto.forget(before, dry_run=False, token=onto.forget(before).token)


def rows_in(where: str) -> list:
    """All that is stored of pages, in every schema version."""
    with opened(where) as onto:
        return versions(onto.query().entities(PageWithWords).across_versions().with_history().collect())


def left_of(rows: list, base: int) -> list:
    """What the plain rule leaves: the last version of each key up to the base unless it is a removal, and all after."""
    last = {key: (commit, key, title, removed) for commit, key, title, removed in sorted(rows) if commit <= base}
    kept = [row for row in last.values() if not row[3]]
    return sorted(kept + [row for row in rows if row[0] > base])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_states_and_changes_from_the_base_on_are_as_before_wherever_it_is(places, seed):
    original = filled(places.new(f"original{seed}"), seed)
    head, everything = head_of(original), rows_in(original)
    for base in range(1, head + 1) if seed or not places.is_bucket else (4, 11):
        where = places.copy(original, f"{seed}-{base}")
        before = seen_from(where, base, head)
        if places.is_bucket and base % 2:
            with Ontology(where) as onto:
                onto.repository.compact(apply=True)
        report = forget(where, base)
        assert (report.base, report.commit_id) == (base, head + 1)
        assert seen_from(where, base, head) == before, (seed, base)
        assert sorted(rows_in(where)) == left_of(everything, base), (seed, base)


def test_what_was_before_the_base_is_an_error_or_said_to_be_missing(where, tmp_path):
    filled(where)
    forget(where, 4)
    with opened(where) as onto:
        pages = onto.query().entities(PageWithWords).across_versions()
        for ask in (
            lambda: pages.as_of(3).collect(),
            lambda: pages.as_of(0).count(),
            lambda: onto.query().entities(PageWithWords).where(PageWithWords.path == "a").as_of(3).collect(),
            lambda: onto.query().entities(PageWithWords).as_of(3).as_stored(),
            lambda: onto.query().relations(LinkNow).as_of(1).to_arrow(),
            lambda: export_data(onto, tmp_path / "export", as_of=3, across_versions=True),
        ):
            with pytest.raises(HistoryForgottenError, match="history begins at commit 4"):
                ask()
        assert not (tmp_path / "export").exists()
        for commit in (1, 4):
            with pytest.raises(HistoryForgottenError, match=f"what commit {commit} changed was given up"):
                onto.list_commit_changes(commit)
        assert onto.get_commit(1)["id"] == 1
        said = {"reason": "history_forgotten", "base_commit_id": 4}
        assert pages.with_history().collect().diagnostics == [said]
        assert pages.history_since(3).collect().diagnostics == [said]
        assert pages.history_since(4).collect().diagnostics == []
        found = onto.query().relations(LinkNow).across_versions()
        assert found.history_since(4).collect().diagnostics == []
        assert found.with_history().collect().diagnostics == [said]
        assert pages.as_of(4).collect().diagnostics == []
        assert onto.storage_info()["history_begins_at"] == 4
        assert onto.get_commit(head_of(where))["metadata"]["base_commit_id"] == 4
        report = export_data(onto, tmp_path / "later", history_since=2, across_versions=True)
        assert said in report.diagnostics
        assert export_data(onto, tmp_path / "then", as_of=4, across_versions=True).diagnostics == []


def test_relations_of_the_base_have_the_ends_of_that_state(where):
    with Session(where, entity_types=[Page], relation_types=[Link]) as session:
        session.ensure([Page(path="a", title="one"), Page(path="b", title="b"), Link(left_key="a", right_key="b")])
        session.commit()
        session.ensure(Page(path="a", title="two"))
        session.commit()
        forget(where, 2)
        (link,) = session.query().relations(Link).with_history().collect()
        assert (link.meta().commit_id, link.left.title, link.right.title) == (1, "two", "b")
        for window in (lambda query: query.with_history(), lambda query: query.history_since(0)):
            found = [
                window(session.query().relations(Link).where(left(Link).title == title)) for title in ("two", "one")
            ]
            assert [query.count() for query in found] == [1, 0]


def test_versions_that_are_gone_need_no_upgrader_and_cut_nothing(where):
    class PageByNumber(Entity, name="Page"):
        path: Field[int] = Field(primary_key=True)

    with Session(where, entity_types=[Page]) as session:
        session.ensure(Page(path="1", title="one"))
        session.commit()
    with Ontology(where, entity_types=[PageByNumber]) as onto:
        onto.migrate(
            dry_run=False,
            force=True,
            upgraders={("Page", 1): lambda row: {"path": int(row["path"])}},
            allow_discard=True,
        )
        history = onto.query().entities(PageByNumber).with_history()
        assert history.collect().diagnostics[0]["reason"] == "history_before_activation"
        forget(where, 2)
        assert [row.path for row in history.across_versions({}).collect()] == [1]
        assert [item["reason"] for item in history.collect().diagnostics] == ["history_forgotten"]


def test_versions_go_whatever_their_fields_are_called(tmp_path):
    """To SQLite, `true` is a field that is called so, and else a truth."""

    class Flag(Entity):
        id: Field[str] = Field(primary_key=True)
        true: Field[str]

    class FlagNow(Flag, name="Flag"):
        since: Field[int] = 0

    with Session(tmp_path / "x.db", entity_types=[Flag]) as session:
        session.ensure(Flag(id="a", true="no"))
    with Session(tmp_path / "x.db", entity_types=[FlagNow]) as session:
        session.migrate(dry_run=False, force=True)
        plan = session.forget(2)
        assert plan.rows == 1
        session.forget(2, dry_run=False, token=plan.token)
        assert session.forget(3).rows == 0


def test_a_type_that_was_renamed_keeps_the_history_it_had_under_its_old_name_from_the_base_on(where):
    class Article(Entity, renamed_from="Page"):
        path: Field[str] = Field(primary_key=True)
        title: Field[str] = Field(index=True)

    with Session(where, entity_types=[Page]) as session:
        for title in ("one", "two", "three"):
            session.ensure(Page(path="a", title=title))
            session.commit()
    with Ontology(where, entity_types=[Article]) as onto:
        onto.migrate(dry_run=False, force=True)
        history = onto.query().entities(Article).across_versions().with_history()
        forget(where, 2)
        assert [(row.meta().commit_id, row.title) for row in history.collect()] == [
            (2, "two"),
            (3, "three"),
            (4, "three"),
        ]
        forget(where, 4)
        assert [(row.meta().commit_id, row.title) for row in history.collect()] == [(4, "three")]


def test_a_second_point_further_on_takes_more_and_none_goes_back(where):
    filled(where)
    head, everything = head_of(where), rows_in(where)
    before = seen_from(where, 11, head)
    forget(where, 4)
    forget(where, 11)
    assert seen_from(where, 11, head) == before
    assert sorted(rows_in(where)) == left_of(everything, 11)
    with Ontology(where) as onto:
        with pytest.raises(ValidationError, match="begins at commit 11 already"):
            onto.forget(4)
        assert (onto.forget(11).is_done, onto.forget(11).rows) == (True, 0)
    assert forget(where, 11).commit_id is None


def test_a_time_means_the_last_commit_made_by_then(where):
    filled(where)
    with Ontology(where) as onto:
        moment = datetime.fromisoformat(onto.get_commit(5)["created_at"])
        assert onto.forget(moment).base == onto.commit_at(moment)
        with pytest.raises(ValidationError, match="no commit yet"):
            onto.forget(moment - timedelta(days=1))
        assert onto.forget(datetime.now(UTC)).base == head_of(where)


def test_a_token_of_another_head_or_point_is_refused(where):
    filled(where)
    rows = rows_in(where)
    with opened(where) as onto:
        token = onto.forget(3).token
        for wrong in (None, "0" * 32, onto.forget(4).token):
            with pytest.raises(ForgetRefusedError, match="preview"):
                onto.forget(3, dry_run=False, token=wrong)
        plan = onto.forget(3)
        with onto.session() as session:
            session.ensure(PageWithWords(path="z", title="z"))
        with pytest.raises(ForgetRefusedError, match="preview it again"):
            onto.forget(3, dry_run=False, token=token)
        with pytest.raises(ForgetRefusedError, match="preview it again"):  # the head moves after the look at the token
            onto.engine.forget(plan.base, plan.head, {})
        for point in (2.0, True, None, "2", date(2020, 1, 1)):
            with pytest.raises(TypeError, match="a commit id or a datetime"):
                onto.forget(point)
        for point in (0, -1, 99):
            with pytest.raises(ValidationError, match="from 1 to the head"):
                onto.forget(point)
    assert [row for row in rows_in(where) if row[1] != "z"] == rows


def test_other_engines_and_releases_refuse(tmp_path):
    for number, (place, options) in enumerate(
        [
            (str(tmp_path / "one.db"), {"engine_version": "v1"}),
            ((tmp_path / "bucket").as_uri(), {"engine_version": "v1"}),
            ((tmp_path / "graph").as_uri(), {"engine": "omnigraph"}),
        ]
    ):
        initialize_storage(place, **options)
        with Ontology(place, entity_types=[Note]) as onto:
            with onto.session() as session:
                session.ensure(Note(id=str(number)))
            with pytest.raises(ValidationError, match="only SQLite files and buckets of engine v2 can forget"):
                onto.forget(1)
    with pytest.raises(EngineVersionError, match="uses forgotten"):
        Stamp.read("v2+forgotten").check("here", KNOWN_IN_BUCKETS - {FORGOTTEN})


def test_work_goes_on_after_it(where):
    filled(where)
    forget(where, 5)
    with opened(where) as onto:
        before = versions(onto.query().entities(PageWithWords).collect())
        with onto.session() as session:
            session.ensure(PageWithWords(path="e", title="new"))
            session.remove(PageWithWords, "e", before[0][1])
        plan = onto.erase("Page", before[1][1], reason="because", cascade=True)
        onto.erase("Page", before[1][1], reason="because", cascade=True, dry_run=False, token=plan.token)

    class PageAgain(Entity, name="Page"):
        path: Field[str] = Field(primary_key=True)
        title: Field[str]
        words: Field[int] = 0
        read: Field[bool] = False

    with Ontology(where, entity_types=[PageAgain]) as onto:
        onto.migrate(dry_run=False, force=True)
        assert [row.path for row in onto.query().entities(PageAgain).collect()] == [row[1] for row in before[2:]]
        state = onto.query().entities(PageAgain).across_versions().as_of(5).collect()
        assert before[1][1] not in {row.path for row in state}
        with pytest.raises(HistoryForgottenError):
            onto.query().entities(PageAgain).across_versions().as_of(4).collect()


def test_a_copy_begins_where_its_source_does_or_is_refused(places, tmp_path):
    plain = places.new("plain")
    with Session(plain, entity_types=[Note]) as session:
        session.ensure(Note(id="n"))
        session.commit()
    forget(plain, 1)
    for dry_run in (True, False):
        with pytest.raises(HistoryForgottenError, match="only stores of engine v2 can say so"):
            copy_history(plain, str(tmp_path / "old.db"), engine_version="v1", dry_run=dry_run)
    assert not (tmp_path / "old.db").exists()
    where = filled(places.new("onto"))
    forget(where, 6)
    head = head_of(where)
    for target in (str(tmp_path / "copy.db"), (tmp_path / "copy").as_uri()):
        copy_history(where, target)
        assert seen_from(target, 6, head) == seen_from(where, 6, head)
        assert rows_in(target) == rows_in(where)
        with opened(target) as onto, pytest.raises(HistoryForgottenError):
            onto.query().entities(PageWithWords).across_versions().as_of(5).collect()
        with opened(target) as onto:
            assert onto.storage_info()["history_begins_at"] == 6


@pytest.mark.slow
def test_a_copy_into_a_bucket_that_is_cut_off_at_any_request_begins_where_its_source_does(tmp_path):
    source = Places(tmp_path, "file").new("source")
    with Session(source, entity_types=[Page]) as session:
        for number in range(3):
            session.ensure([Page(path="a", title=str(number)), Page(path="b", title="same")])
            session.commit()
    forget(source, 2)
    names = itertools.count()

    def attempt(fault: Fault) -> list[Request]:
        target = f"memory://forgotten-{os.getpid()}-{next(names)}/store"
        fault.during(lambda: copy_history(source, target), at=target)
        try:
            Ontology(target).close()
        except (UnfinishedCopyError, UninitializedStorageError):
            copy_history(source, target)
        with Ontology(target, entity_types=[Page]) as onto:
            assert onto.storage_info()["history_begins_at"] == 2, fault
            pages = onto.query().entities(Page).with_history()
            assert [(row.meta().commit_id, row.title) for row in pages.collect()] == [(1, "same"), (2, "1"), (3, "2")]
            with pytest.raises(HistoryForgottenError):
                onto.query().entities(Page).as_of(1).collect()
        return fault.seen

    for fault in faults_at(attempt(Fault())):
        attempt(fault)


def test_the_file_gets_smaller_and_readers_see_one_state(tmp_path):
    where = Places(tmp_path, "file").new("onto")
    with Session(where, entity_types=[Page]) as session:
        for step in range(20):
            session.ensure(Page(path=str(number), title=f"{step} " + "x" * 200) for number in range(200))
            session.commit()
        size = (tmp_path / "onto.db").stat().st_size
        with session.engine.snapshot():
            session.query().entities(Page).as_of(1).count()
            waits_for = forget(where, 20).space_waits_for
            assert "somebody is reading the file" in (waits_for or "")
            assert session.query().entities(Page).as_of(1).count() == 200
        with pytest.raises(HistoryForgottenError):
            session.query().entities(Page).as_of(1).count()
    assert forget(where, 21).space_waits_for is None
    with Ontology(where) as onto:
        assert onto.repository.count_entities("Page") == 200
    assert (tmp_path / "onto.db").stat().st_size < size / 4


@pytest.mark.thorough
def test_killed_at_any_statement_it_is_done_or_not_begun(tmp_path):
    original = tmp_path / "original"
    original.mkdir()
    where = filled(Places(original, "file").new("onto"))
    head, base = head_of(where), 10
    before, everything = seen_from(where, base, head), rows_in(where)
    outcomes = set()
    for statement in itertools.count(1):
        folder = tmp_path / "attempt"
        shutil.copytree(original, folder)
        copied = str(folder / "onto.db")
        with Ontology(copied) as onto:
            token = onto.forget(base).token
        was_killed = is_killed(statement, lambda: _applied(copied, base, token))  # noqa: B023 — called at once
        rows = sorted(rows_in(copied))
        is_done = head_of(copied) > head
        assert rows == (left_of(everything, base) if is_done else sorted(everything)), statement
        forget(copied, base)
        assert seen_from(copied, base, head) == before, statement
        assert sorted(rows_in(copied)) == left_of(everything, base)
        outcomes.add((was_killed, is_done))
        shutil.rmtree(folder)
        if not was_killed:
            break
    assert (True, False) in outcomes
    assert (False, True) in outcomes


def _applied(where: str, base: int, token: str) -> None:
    with Ontology(where) as onto:
        onto.forget(base, dry_run=False, token=token)
