"""`onto migrate`: a preview with diffs and a token, then one commit."""

import pytest

NEXT = ("--models", "myapp.next_models", "--upgraders", "myapp.migrations")


@pytest.fixture(autouse=True)
def _no_upgraders(monkeypatch):
    """Each test registers its own: in the command's own process nothing is registered before either."""
    import sys

    from ontologia.model import upgraders

    monkeypatch.setattr(upgraders, "_registered", {})
    sys.modules.pop("myapp.migrations", None)


def migrate(onto, target, *more):
    return onto("migrate", *target.flags, *more)


def test_a_preview_says_what_changes_and_gives_a_token(onto, shop):
    facts = migrate(onto, shop, *NEXT, "--json").valid("migrate-preview")
    assert facts["has_changes"]
    assert facts["estimated_rows"] == 5
    assert facts["types_requiring_upgraders"] == ["Customer"]
    assert facts["missing_upgraders"] == []
    assert onto("info", *shop.flags, "--json").json["head"] == 2


def test_the_preview_is_drawn_as_a_diff(onto, shop):
    lines = migrate(onto, shop, *NEXT).out.splitlines()
    assert lines[0] == "entity Customer"
    assert "  + level: int" in lines
    assert "  - tier: str" in lines
    assert lines[-1].startswith("token: ")


def test_the_token_applies_it_as_one_commit(onto, shop):
    token = migrate(onto, shop, *NEXT, "--json").json["token"]
    answer = migrate(onto, shop, *NEXT, "--apply", "--token", token, "--meta", "ticket=7", "--json")
    facts = answer.valid("migrate-result")
    assert (facts["rows_migrated"], facts["new_schema_versions"], facts["commit_id"]) == (5, {"Customer": 2}, 3)
    assert shop.where in answer.err
    assert onto("commits", *shop.flags, "--json").json["commits"][0]["metadata"]["ticket"] == "7"
    levels = onto("query", "entities", "Customer", *shop.flags, "--json").rows
    assert [row["level"] for row in levels] == [1, 2, 1, 2, 1]


def test_nothing_to_migrate(onto, shop):
    facts = migrate(onto, shop, "--models", "myapp.models", "--json").valid("migrate-preview")
    assert not facts["has_changes"]
    applied = migrate(onto, shop, "--models", "myapp.models", "--apply", "--force", "--json").valid("migrate-result")
    assert applied["commit_id"] is None


def test_a_stale_token_is_a_lost_race(onto, shop, models):
    token = migrate(onto, shop, *NEXT, "--json").json["token"]
    with shop.ontology(models) as ontology, ontology.session() as session:
        session.ensure(models.Product(sku=99, price=1.0))
    migrate(onto, shop, *NEXT, "--apply", "--token", token).failed(4, "preview again")


def test_missing_upgraders_are_told_in_the_preview_and_refused_when_applied(onto, shop):
    answer = migrate(onto, shop, "--models", "myapp.next_models", "--json")
    assert answer.valid("migrate-preview")["missing_upgraders"] == [{"type": "Customer", "from_version": 1}]
    assert "Customer from version 1" in answer.err
    migrate(onto, shop, "--models", "myapp.next_models", "--apply", "--force").failed(4, "no upgrader")


def test_the_preview_says_which_fields_need_the_missing_upgrader(onto, filled, tmp_path):
    (tmp_path / "measured.py").write_text(
        "from ontologia import Entity, Field\n"
        "class Product(Entity):\n"
        "    sku: Field[int] = Field(primary_key=True)\n"
        "    price: Field[str]\n"
        "    labels: Field[list[str]] = Field(default_factory=list)\n"
    )
    lines = migrate(onto, filled("sqlite-v2"), "--models", "./measured.py").out.splitlines()
    assert "  price: needs an upgrader, for 3 rows" in lines
    assert "  labels: new; 3 rows get the default" in lines


def test_an_upgrader_that_fails_names_the_row_and_changes_nothing(onto, shop, tmp_path):
    (tmp_path / "bad.py").write_text(
        "from ontologia import upgrader\n"
        "@upgrader('Customer', from_version=1)\n"
        "def fail(row):\n    raise ValueError('no idea')\n"
    )
    arguments = ("--models", "myapp.next_models", "--upgraders", "./bad.py", "--apply", "--force")
    migrate(onto, shop, *arguments).failed(4, "c0", "no idea")
    assert onto("info", *shop.flags, "--json").json["head"] == 2


def test_a_check_names_every_row_that_fails_and_writes_nothing(onto, shop, tmp_path):
    (tmp_path / "picky.py").write_text(
        "from ontologia import upgrader\n"
        "@upgrader('Customer', from_version=1)\n"
        "def fail(row):\n    raise ValueError('no idea')\n"
    )
    arguments = ("--models", "myapp.next_models", "--upgraders", "./picky.py", "--check")
    answer = migrate(onto, shop, *arguments, "--json")
    facts = answer.valid("migrate-check")
    assert (answer.code, facts["passed"], facts["rows"], len(facts["failures"])) == (3, False, {"Customer": 5}, 5)
    assert "5 rows of 5 cannot; nothing was written" in migrate(onto, shop, *arguments).out
    assert onto("info", *shop.flags, "--json").json["head"] == 2


def test_a_check_that_passes_says_so(onto, shop):
    answer = migrate(onto, shop, *NEXT, "--check")
    assert (answer.code, "5 rows can be carried over; nothing was written" in answer.out) == (0, True)


def test_values_are_discarded_only_with_an_option_that_says_so(onto, shop, tmp_path):
    (tmp_path / "fewer.py").write_text(
        "from ontologia import Entity, Field\nclass Customer(Entity):\n    id: Field[str] = Field(primary_key=True)\n"
    )
    fewer = ("--models", "./fewer.py")
    drawn = migrate(onto, shop, *fewer)
    assert "  tier: gone from the code; its values in 5 rows are discarded" in drawn.out.splitlines()
    assert "--allow-discard" in drawn.err
    migrate(onto, shop, *fewer, "--apply", "--force").failed(7, "Customer.tier in 5 rows", "--allow-discard")
    assert migrate(onto, shop, *fewer, "--apply", "--force", "--allow-discard").code == 0


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ((*NEXT, "--check", "--apply", "--force"), "--check"),
        ((*NEXT, "--allow-discard"), "--apply"),
        ((*NEXT, "--apply"), "--token"),
        ((*NEXT, "--token", "x"), "--apply"),
        ((*NEXT, "--force"), "--apply"),
        ((*NEXT, "--apply", "--force", "--token", "x"), "exclude"),
        ((*NEXT, "--apply", "--force", "--meta", "nothing"), "key=value"),
        ((*NEXT, "--engine", "abacus"), "--engine"),
        ((), "--models"),
        (("--models", "myapp.models", "--upgraders", "myapp.models"), "@upgrader"),
        (("--models", "myapp.models", "--upgraders", "no_such_module"), "no_such_module"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(onto, filled, more, word):
    migrate(onto, filled("sqlite-v2"), *more).failed(2, word)
