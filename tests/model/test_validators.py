"""Pydantic's validators and limits on declared classes: they run wherever rows enter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pydantic
import pytest
from pydantic import Field as Limits
from pydantic import ValidationInfo, computed_field, field_serializer, field_validator, model_validator

from ontologia import (
    Entity,
    Event,
    Field,
    GraphValidationError,
    OntologiaConfig,
    Ontology,
    Relation,
    Session,
    ValidationError,
    import_data,
    on_event,
)
from ontologia.runtime.intake.rows import fit_columns
from ontologia.runtime.loading.local import LocalPipeline


class Airport(Entity):
    code: Field[str] = Field(primary_key=True, min_length=3, max_length=3, description="IATA's code")
    runways: Field[int] = Field(default=1, ge=1, le=20)
    tags: Field[list[str]] = Field(default_factory=list, max_length=3)
    gates: Field[int | None] = Field(default=None, ge=0)
    icao: Field[str | None] = Field(default=None, pattern="^[A-Z]{4}$")

    @field_validator("code")
    @classmethod
    def upper(cls, value: str) -> str:
        return value.upper()


class Stay(Entity):
    id: Field[str] = Field(primary_key=True)
    begins: Field[int]
    ends: Field[int]
    notes: Field[list[str]] = Field(default_factory=list)
    nights: Field[int] = 0

    @model_validator(mode="before")
    @classmethod
    def take_a_range(cls, values: Any) -> Any:
        if "range" in values:
            begins, ends = values["range"]
            return {name: value for name, value in values.items() if name != "range"} | {"begins": begins, "ends": ends}
        return values

    @model_validator(mode="after")
    def check_order(self) -> Stay:
        if self.ends < self.begins:
            raise ValueError("ends before it begins")
        if len(self.notes) > 2:
            raise ValueError("too many notes")
        self.nights = self.ends - self.begins
        return self


class Leg(Relation[Airport, Airport]):
    number: Field[str] = Field(instance_key=True, pattern="^[A-Z]{2}[0-9]+$")
    miles: Field[int] = Field(default=1, gt=0)

    @field_validator("miles")
    @classmethod
    def not_to_itself(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("left_key") == info.data.get("right_key"):
            raise ValueError("goes nowhere")
        return value


# --- objects ---


def test_a_field_validator_gives_the_value():
    assert Airport(code="jfk").code == "JFK"


@pytest.mark.parametrize(
    "values",
    [{"code": "abcd"}, {"runways": 0}, {"tags": ["a"] * 4}, {"gates": -1}, {"icao": "kjfk"}],
    ids=lambda values: str(*values),
)
def test_a_limit_refuses_a_value(values):
    with pytest.raises(pydantic.ValidationError):
        Airport(**({"code": "JFK"} | values))


def test_a_limit_holds_in_an_assignment():
    airport = Airport(code="JFK")
    with pytest.raises(pydantic.ValidationError):
        airport.runways = 0


def test_a_limit_lets_none_be_none():
    assert Airport(code="JFK", gates=None, icao=None).gates is None


def test_a_model_validator_sees_the_row():
    with pytest.raises(pydantic.ValidationError, match="ends before it begins"):
        Stay(id="1", begins=2, ends=1)


def test_a_model_validator_may_set_fields():
    assert Stay(id="1", begins=2, ends=5).nights == 3


def test_a_model_validator_may_change_what_comes_in():
    assert Stay(id="1", range=(2, 5)).ends == 5


def test_a_model_validator_runs_for_an_assignment():
    stay = Stay(id="1", begins=2, ends=5)
    stay.ends = 6
    assert stay.nights == 4
    with pytest.raises(pydantic.ValidationError, match="ends before it begins"):
        stay.ends = 1


def test_a_model_validator_around_the_others_sees_the_object():
    class Loud(Entity):
        id: Field[str] = Field(primary_key=True)

        @model_validator(mode="wrap")
        @classmethod
        def shout(cls, values: Any, handler: Any) -> Any:
            made = handler(values)
            made.id = made.id.upper()
            return made

    assert Loud(id="a").id == "A"


def test_a_model_validator_that_returns_nothing_is_told():
    class Forgetful(Entity):
        id: Field[str] = Field(primary_key=True)

        @model_validator(mode="after")
        def check(self) -> None:
            pass

    with pytest.raises(pydantic.ValidationError, match="a model validator returns self"):
        Forgetful(id="a")


def test_a_field_validator_that_returns_another_type_is_told():
    class Forgetful(Entity):
        id: Field[str] = Field(primary_key=True)

        @field_validator("id")
        @classmethod
        def check(cls, value: str) -> None:
            pass

    with pytest.raises(pydantic.ValidationError, match="valid string"):
        Forgetful(id="a")


def test_a_field_validator_sees_the_fields_before_it():
    with pytest.raises(pydantic.ValidationError, match="goes nowhere"):
        Leg(left_key="JFK", right_key="JFK", number="AB1")


def test_validators_are_inherited_and_overridden():
    class Quiet(Airport):
        @field_validator("code")
        @classmethod
        def upper(cls, value: str) -> str:
            return value.lower()

    class Same(Airport):
        pass

    assert (Quiet(code="JFK").code, Same(code="jfk").code) == ("jfk", "JFK")


def test_an_event_is_validated():
    class Landed(Event):
        code: Field[str] = Field(min_length=3)

        @field_validator("code")
        @classmethod
        def upper(cls, value: str) -> str:
            return value.upper()

    assert Landed(code="jfk").code == "JFK"


def test_a_computed_field_is_there_and_not_stored():
    class Box(Entity):
        id: Field[str] = Field(primary_key=True)
        side: Field[int]

        @computed_field
        @property
        def area(self) -> int:
            return self.side**2

    with Ontology(":memory:", entity_types=[Box]) as onto:
        with onto.session() as session:
            session.ensure(Box(id="a", side=3))
        found = onto.query().entities(Box)
        assert (found.first().area, found.to_arrow().column_names) == (9, ["id", "side"])


def test_a_validator_of_no_field_is_refused_with_the_class():
    with pytest.raises(TypeError, match="validates 'nmae', and there is no such field"):

        class Wrong(Entity):
            id: Field[str] = Field(primary_key=True)

            @field_validator("nmae")
            @classmethod
            def check(cls, value: str) -> str:
                return value


def test_a_serializer_is_refused_with_the_class():
    with pytest.raises(TypeError, match="@field_serializer has no meaning here"):

        class Wrong(Entity):
            id: Field[str] = Field(primary_key=True)

            @field_serializer("id")
            def show(self, value: str) -> str:
                return value


def test_limits_and_descriptions_are_in_the_json_schema():
    code = Airport.model_json_schema()["properties"]["code"]
    assert (code["minLength"], code["description"]) == (3, "IATA's code")


def test_limits_are_no_part_of_the_stored_schema():
    class Plain(Entity, name="Airport"):
        code: Field[str] = Field(primary_key=True)
        runways: Field[int] = 1
        tags: Field[list[str]] = Field(default_factory=list)
        gates: Field[int | None] = None
        icao: Field[str | None] = None

    assert Plain.__declaration__.schema.fingerprint == Airport.__declaration__.schema.fingerprint


# --- sessions ---


def test_a_list_that_was_changed_in_place_is_validated_by_a_session():
    stay = Stay(id="1", begins=1, ends=2)
    stay.notes.extend("abc")
    with Ontology(":memory:", entity_types=[Stay]) as onto, pytest.raises(ValueError, match="too many notes"):
        onto.session().ensure(stay)


def test_what_a_handler_ensures_is_validated(tmp_path: Path):
    class Asked(Event):
        code: Field[str]

    errors: list[str] = []

    @on_event(Asked)
    def answer(ctx: Any) -> None:
        try:
            ctx.ensure(Airport(code=ctx.event.code))
        except pydantic.ValidationError as problem:
            errors.append(problem.errors()[0]["type"])

    config = OntologiaConfig(event_poll_interval_ms=5)
    with Session(str(tmp_path / "a.db"), entity_types=[Airport], config=config) as session:
        session.commit(event=Asked(code="x"))
        session.run([answer], max_iterations=1)
    assert errors == ["string_too_short"]


# --- loads and imports ---


def load(tmp_path: Path, cls: type[Any], table: pa.Table, **options: Any) -> Ontology:
    path = str(tmp_path / "a.db")
    LocalPipeline(path, on_invalid="quarantine").load(table, into=cls, **options).commit()
    return Ontology(path, entity_types=[Airport, Stay], relation_types=[Leg])


def test_a_load_runs_field_validators_and_limits(tmp_path: Path):
    table = pa.table({"code": ["jfk", "abcd", "lax", "cdg"], "runways": [4, 1, 0, 4], "gates": [1, 1, 1, None]})
    with load(tmp_path, Airport, table) as onto:
        assert [(a.code, a.gates) for a in onto.query().entities(Airport).collect()] == [("CDG", None), ("JFK", 1)]


def test_a_load_runs_model_validators_row_by_row(tmp_path: Path):
    table = pa.table({"id": ["a", "b", "c"], "begins": [1, 2, None], "ends": [4, 1, 2], "notes": [["x"], [], []]})
    with load(tmp_path, Stay, table) as onto:
        assert onto.query().entities(Stay).collect() == [Stay(id="a", begins=1, ends=4, notes=["x"])]


def test_a_load_of_relations_runs_validators_that_see_other_fields(tmp_path: Path):
    table = pa.table({"l": ["JFK", "JFK", "LAX"], "r": ["LAX", "JFK", "JFK"], "number": ["AB1", "AB2", "x"]})
    with load(tmp_path, Leg, table, left="l", right="r", instance_key="number") as onto:
        assert [leg.number for leg in onto.query().relations(Leg).collect()] == ["AB1"]


def test_a_load_that_keeps_parts_of_rows_cannot_check_whole_ones(tmp_path: Path):
    table = pa.table({"id": ["a"], "begins": [1], "ends": [4]})
    with pytest.raises(ValidationError, match="validators of whole rows"):
        load(tmp_path, Stay, table, missing="keep")


@pytest.mark.parametrize("cls", [Airport, Stay])
def test_a_write_on_spark_refuses_a_class_with_validators(cls):
    with pytest.raises(ValidationError, match="do not run on Spark"):
        fit_columns(pa.schema({"code": pa.string()}), cls.__declaration__.schema, cls.__declaration__)


def test_a_write_on_spark_takes_limits():
    class Limited(Entity):
        id: Field[str] = Field(primary_key=True, max_length=2)
        size: Field[Annotated[int, Limits(ge=0)]]

    given = pa.table({"id": ["a", "abc", "b"], "size": [1, 1, -1]})
    rows, rejected = fit_columns(given.schema, Limited.__declaration__.schema, Limited.__declaration__).take(given)
    assert (rows.num_rows, len(rejected)) == (1, 2)


def test_an_import_runs_validators(tmp_path: Path):
    folder = tmp_path / "data" / "entities"
    folder.mkdir(parents=True)
    record = {"kind": "entity", "type": "Stay", "key": "a", "fields": {"id": "a", "begins": 2, "ends": 1}}
    (folder / "Stay.jsonl").write_text(json.dumps(record) + "\n")
    onto = Ontology(str(tmp_path / "a.db"), entity_types=[Stay])
    with onto, pytest.raises(ValidationError, match="ends before it begins"):
        import_data(onto, tmp_path / "data", dry_run=False)


def test_a_table_for_a_graph_is_validated(tmp_path: Path):
    from ontologia.omnigraph import Omnigraph

    graph = Omnigraph.init((tmp_path / "graph").as_uri(), types=[Airport, Stay])
    with pytest.raises(GraphValidationError, match="not valid") as caught, graph.transaction() as tx:
        tx.upsert_arrow(Airport, pa.table({"code": ["jfk", "abcd"], "runways": [1, 1]}))
    assert "row 1" in str(caught.value)
    with pytest.raises(GraphValidationError, match="not valid"), graph.transaction() as tx:
        tx.upsert_arrow(Stay, pa.table({"id": ["a"], "begins": [2], "ends": [1]}))
    with graph.transaction() as tx:
        tx.upsert_arrow(Airport, pa.table({"code": ["jfk"], "runways": [1]}))
    assert [airport.code for airport in graph.query().entities(Airport).collect()] == ["JFK"]
