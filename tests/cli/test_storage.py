"""`onto init` and `onto info` on every engine."""

import pytest

import ontologia


@pytest.fixture(params=["sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2", pytest.param("server-v2", marks=pytest.mark.s3)])
def new(request, place):
    return place(request.param)


def initialize(onto, target, *more):
    return onto("init", *target.flags, "--engine-version", target.version, *more)


def test_init_lays_out_a_store_with_the_version_asked_for(onto, new):
    facts = initialize(onto, new, "--json").valid("init")
    assert facts["initialized"]
    assert onto("info", *new.flags, "--json").json["engine_version"] == new.version


def test_init_echoes_its_target(onto, new):
    assert new.where in initialize(onto, new).err


def test_init_takes_the_latest_version_by_default(onto, place):
    onto("init", *place("sqlite-v1").flags)
    assert onto("info", *place("sqlite-v1").flags, "--json").json["engine_version"] == "v2"


def test_a_dry_run_lists_what_would_be_made_and_makes_nothing(onto, new, tmp_path):
    facts = initialize(onto, new, "--dry-run", "--json").valid("init")
    assert not facts["initialized"]
    assert facts["planned"]
    assert facts["token"] is None
    assert onto("info", *new.flags).code == 5


def test_an_initialized_store_is_refused(onto, new):
    initialize(onto, new)
    initialize(onto, new).failed(1, "already")
    initialize(onto, new, "--dry-run").failed(1, "already")


def test_force_needs_the_token_of_its_dry_run_and_empties_the_store(onto, shop):
    initialize(onto, shop, "--force").failed(2, "--token")
    token = initialize(onto, shop, "--force", "--dry-run", "--json").valid("init")["token"]
    assert onto("info", *shop.flags, "--json").json["head"] == 2
    assert initialize(onto, shop, "--force", "--token", token, "--json").valid("init")["initialized"]
    assert onto("info", *shop.flags, "--json").json["head"] == 0


def test_a_wrong_or_stale_token_is_refused(onto, shop, models):
    initialize(onto, shop, "--force", "--token", "wrong").failed(7, "token")
    token = initialize(onto, shop, "--force", "--dry-run", "--json").json["token"]
    with shop.ontology(models) as ontology, ontology.session() as session:
        session.ensure(models.Customer(id="new", name="New"))
    initialize(onto, shop, "--force", "--token", token).failed(7, "token")
    assert onto("info", *shop.flags, "--json").json["head"] == 3


def test_the_engine_must_fit_the_target(onto, place):
    onto("init", *place("sqlite-v2").flags, "--engine", "s3").failed(2, "does not fit")
    onto("init", *place("s3-v2").flags, "--engine", "sqlite").failed(2, "does not fit")
    assert onto("init", *place("s3-v2").flags, "--engine", "s3").code == 0


@pytest.mark.parametrize("more", [("--engine-version", "v9"), ("--engine", "tape"), ("--token", "x")])
def test_options_that_make_no_sense_are_usage_errors(onto, place, more):
    onto("init", *place("sqlite-v2").flags, *more).failed(2, more[0])


def test_a_prefix_with_other_things_in_it_is_refused(onto, place, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "holiday.jpg").write_text("beach")
    onto("init", *place("s3-v2").flags).failed(1, "not empty")


# --- info ---


def test_info_knows_engine_head_types_and_counts(onto, shop):
    facts = onto("info", *shop.flags, "--json").valid("info")
    assert facts["engine_version"] == shop.version
    assert facts["backend"] == ("sqlite" if shop.is_sqlite else "s3")
    assert facts["head"] == 2
    assert facts["newest_commit"]["metadata"] == {"source": "crm"}
    assert {item["name"]: item["rows"] for item in facts["types"]} == {"Customer": 5, "Product": 3, "Subscription": 3}
    assert facts["bytes"] > 0


def test_info_gives_the_storage_info_of_the_python_api(onto, shop, models):
    facts = onto("info", *shop.flags, "--json").json
    with shop.ontology(models) as ontology:
        assert facts["storage"] == ontology.storage_info()


def test_stats_count_versions(onto, shop):
    facts = onto("info", *shop.flags, "--stats", "--json").valid("info")
    assert {item["name"]: item["versions"] for item in facts["types"]}["Customer"] == 6


def test_schema_shows_the_fields(onto, shop):
    facts = onto("info", *shop.flags, "--schema", "--json").valid("info")
    assert [field["name"] for field in facts["types"][1]["schema"]["fields"]] == ["sku", "price", "since"]
    assert "sku: int  primary_key" in onto("info", *shop.flags, "--schema").out


def test_info_of_an_empty_store(onto, empty):
    answer = onto("info", *empty.flags, "--json")
    facts = answer.valid("info")
    assert (facts["head"], facts["types"], facts["newest_commit"]) == (0, [], None)
    assert onto("info", *empty.flags).code == 0


def test_info_in_a_pipe_is_plain_text(onto, shop):
    out = onto("info", *shop.flags).out
    assert "\x1b" not in out
    assert "Subscription" in out


@pytest.mark.parametrize("name", ["s3-v1", "s3-v2"])
def test_info_advises_to_compact_many_small_files(onto, initialized, models, name):
    target = initialized(name)
    with target.ontology(models) as ontology:
        for number in range(9):
            with ontology.session() as session:
                session.ensure(models.Product(sku=number, price=1.0))
    facts = onto("info", *target.flags, "--json").valid("info")
    (advice,) = facts["advice"]
    assert "onto compact --type Product --apply" in advice["text"]
    assert facts["types"][0]["files"] == 9


def test_the_python_api_gives_the_same_types(shop, onto, models):
    with shop.ontology(models) as ontology:
        assert isinstance(ontology, ontologia.Ontology)
        names = {ref.name for ref in ontology.engine.catalog().layouts}
    assert {item["name"] for item in onto("info", *shop.flags, "--json").json["types"]} == names


@pytest.mark.parametrize("content", ["", "{", "[]", '{"type_name": "Customer"}', '{"type_name": 1, "entries": 5}'])
def test_info_warns_of_one_malformed_index_and_shows_the_rest(onto, filled, tmp_path, content):
    target = filled("s3-v2")
    (tmp_path / "store/meta/indices/entities/Customer.json").write_text(content)
    answer = onto("info", *target.flags, "--stats", "--json")
    types = {item["name"]: item for item in answer.valid("info")["types"]}
    assert (answer.code, types["Product"]["rows"], types["Customer"]["rows"]) == (0, 3, None)
    assert "Customer.json is malformed" in types["Customer"]["problem"]
    assert "warning: Customer cannot be read" in answer.err
    assert "onto index repair --apply" in answer.err
    assert onto("info", *target.flags).code == 0
