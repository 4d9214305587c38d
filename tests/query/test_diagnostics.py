"""What an answer says about itself: in the result, in a warning, in an export and on the console."""

import json

import pytest

from ontologia import Entity, Field, Ontology, Relation, export_data
from ontologia.cli import main
from ontologia.errors import CommitAfterHeadWarning, HistoryCutError, HistoryCutWarning


class User(Entity):
    id: Field[str] = Field(primary_key=True)


class Knows(Relation[User, User]): ...


class Named(Entity, name="User"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str | None] = None


class NamedKnows(Relation[Named, Named], name="Knows"): ...


@pytest.fixture
def migrated(path):
    """A store whose entity was migrated at commit 2, after the relation was written."""
    with Ontology(path, entity_types=[User], relation_types=[Knows]) as onto, onto.session() as session:
        session.ensure([User(id="a"), Knows(left_key="a", right_key="a")])
    with Ontology(path, entity_types=[Named], relation_types=[NamedKnows]) as onto:
        onto.migrate(dry_run=False, force=True)
        yield onto


def test_a_warning_names_the_line_that_asked(migrated):
    with pytest.warns(CommitAfterHeadWarning) as caught:
        migrated.query().entities(Named).as_of(99).count()
    assert [warning.filename for warning in caught] == [__file__]


def test_a_commit_that_is_there_gives_no_warning(migrated, recwarn):
    migrated.query().entities(Named).as_of(2).count()
    assert list(recwarn) == []


def test_an_export_that_would_lack_rows_is_refused_and_leaves_nothing(migrated, tmp_path):
    with pytest.raises(HistoryCutError, match=r"without the rows of entity User \(since commit 2\).*--across-versions"):
        export_data(migrated, tmp_path / "out", as_of=1)
    assert list(tmp_path.glob("*out*")) == []


def test_an_export_across_versions_has_all_rows_as_rows_of_today(migrated, tmp_path):
    report = export_data(migrated, tmp_path / "out", as_of=1, across_versions=True)
    assert (report.commit, [item.rows for item in report.types], report.diagnostics) == (1, [1, 1], [])
    line = (tmp_path / "out" / "entities" / "User.jsonl").read_text(encoding="utf-8")
    assert json.loads(line)["fields"] == {"id": "a", "name": None}


def test_an_export_of_types_that_were_not_there_yet_is_complete(path, tmp_path):
    with Ontology(path, entity_types=[User], relation_types=[Knows]) as onto:
        with onto.session() as session:
            session.ensure(User(id="a"))
        with onto.session() as session:
            session.ensure(Knows(left_key="a", right_key="a"))
        report = export_data(onto, tmp_path / "out", as_of=1)
    assert report.diagnostics == [
        {"reason": "commit_before_activation", "type": "relation Knows", "activation_commit_id": 2}
    ]


def test_an_export_of_history_says_what_it_leaves_out(migrated, tmp_path):
    with pytest.warns(HistoryCutWarning):
        report = export_data(migrated, tmp_path / "out", history_since=0)
    assert report.diagnostics == [
        {"reason": "history_before_activation", "type": "entity User", "activation_commit_id": 2}
    ]
    report = export_data(migrated, tmp_path / "all", history_since=0, across_versions=True, with_metadata=True)
    assert [item.rows for item in report.types] == [2, 1]


def test_an_export_beyond_the_head_is_of_the_head_and_says_so(migrated, tmp_path):
    with pytest.warns(CommitAfterHeadWarning):
        report = export_data(migrated, tmp_path / "out", as_of=99)
    assert (report.commit, report.diagnostics) == (
        2,
        [{"reason": "commit_after_head", "commit_id": 99, "head_commit_id": 2}],
    )


def test_a_negative_commit_is_no_export(migrated, tmp_path):
    with pytest.raises(Exception, match="zero or more, not -1"):
        export_data(migrated, tmp_path / "out", as_of=-1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["query", "relations", "Knows", "--as-of", "99"], "commit 99 is not there yet"),
        (["export", "--output", "OUT", "--as-of", "1"], "export it across versions"),
        (["query", "entities", "User", "--as-of", "1"], "with --across-versions"),
        (
            ["query", "entities", "User", "--with-history"],
            "from before commit 2, when the current schema became active",
        ),
        (["query", "traverse", "User", "--via", "Knows", "--as-of", "1"], "rows are readable since commit 2"),
    ],
    ids=["query", "export", "state", "history", "path"],
)
def test_the_console_passes_it_on(migrated, path, tmp_path, capsys, arguments, said):
    main([argument.replace("OUT", str(tmp_path / "out")) for argument in arguments] + ["--db", path])
    assert said in capsys.readouterr().err


def test_an_export_on_the_console_names_the_commit_it_is_of(migrated, path, tmp_path, capsys):
    main(["export", "--output", str(tmp_path / "out"), "--as-of", "1", "--across-versions", "--db", path])
    assert "of commit 1 to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["entities", "User", "--as-of", "1"], 1),
        (["entities", "User", "--with-history"], 2),
        (["relations", "Knows", "--as-of", "1", "--filter", "$.left.name", "is_null", "true"], 1),
        (["traverse", "User", "--via", "Knows", "--as-of", "1"], 1),
    ],
)
def test_the_console_reads_across_versions(migrated, path, capsys, arguments, rows):
    main(["query", *arguments, "--across-versions", "--db", path, "--json"])
    found = capsys.readouterr()
    assert (json.loads(found.out)["count"], found.err) == (rows, "")


def test_upgraders_are_for_reading_across_versions(migrated, path, capsys):
    main(["query", "entities", "User", "--upgraders", "x", "--db", path])
    assert "--upgraders is for --across-versions" in capsys.readouterr().err
