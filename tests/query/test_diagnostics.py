"""What an answer says about itself: in the result, in a warning, in an export and on the console."""

import pytest

from ontologia import Entity, Field, Ontology, Relation, export_data
from ontologia.cli import main
from ontologia.errors import CommitAfterHeadWarning


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


def test_an_export_says_which_types_cannot_be_read_at_its_commit(migrated, tmp_path):
    report = export_data(migrated, tmp_path / "out", as_of=1)
    assert (report.commit, [item.rows for item in report.types]) == (1, [0, 1])
    assert report.diagnostics == [
        {"reason": "commit_before_activation", "type": "entity User", "activation_commit_id": 2}
    ]


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
        (["export", "--output", "OUT", "--as-of", "1"], "rows of entity User are readable since commit 2"),
    ],
    ids=["query", "export"],
)
def test_the_console_passes_it_on(migrated, path, tmp_path, capsys, arguments, said):
    main([argument.replace("OUT", str(tmp_path / "out")) for argument in arguments] + ["--db", path])
    assert said in capsys.readouterr().err


def test_an_export_on_the_console_names_the_commit_it_is_of(migrated, path, tmp_path, capsys):
    main(["export", "--output", str(tmp_path / "out"), "--as-of", "1", "--db", path])
    assert "of commit 1 to" in capsys.readouterr().out
