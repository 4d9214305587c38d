"""Filters whose answers are written by hand: three-valued logic, paths, list items, endpoints, odd names and values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from functools import reduce
from math import inf, isnan, nan
from operator import or_
from typing import Any

import pytest
from typing_extensions import TypedDict

from ontologia.model import Entity, Field, Predicate, Relation, left, right
from ontologia.runtime.session import Session
from ontologia.testing.conformance.answers import plain_values
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit
from ontologia.testing.conformance.shop import Customer, Order, Subscription


class Tree(TypedDict, total=False):
    """A structure that contains itself."""

    name: str
    child: Tree
    items: list[Tree]


class Odd(Entity, name="select"):
    """Names that mean something to SQL or to the storage, or that differ only in case."""

    id: Field[str] = Field(primary_key=True)
    commit_id: Field[int] = Field(default=0)
    entity_key: Field[str] = Field(default="")
    rowid: Field[int] = Field(default=0)
    fields_json: Field[str] = Field(default="")
    where: Field[str] = Field(default="")
    Where: Field[str] = Field(default="")
    größe: Field[float] = Field(default=0.0)
    schema_version_id: Field[Any] = Field(default=None)


class Everything(Entity):
    """Every kind of field once."""

    id: Field[datetime] = Field(primary_key=True)
    text: Field[str | None] = Field(default=None)
    whole: Field[int | None] = Field(default=None)
    real: Field[float | None] = Field(default=None)
    truth: Field[bool | None] = Field(default=None)
    instant: Field[datetime | None] = Field(default=None)
    day: Field[date | None] = Field(default=None)
    data: Field[bytes | None] = Field(default=None)
    numbers: Field[list[float]] = Field(default_factory=list)
    instants: Field[dict[str, datetime]] = Field(default_factory=dict)
    blobs: Field[list[bytes]] = Field(default_factory=list)
    mixed: Field[int | str | None] = Field(default=None)
    tree: Field[Tree | None] = Field(default=None)
    anything: Field[Any] = Field(default=None)


class Joins(Relation[Odd, Odd], name="order"):
    """Between types with odd names."""

    limit: Field[int] = Field(default=0)


def ids(session: Session, predicate: Predicate) -> list[str]:
    return [customer.id for customer in session.query().entities(Customer).where(predicate).collect()]


class FilterConformance(ConformanceSuite):
    """Filters."""

    @pytest.fixture
    def people(self, store: StoreUnderTest) -> Session:
        session = store.session()
        commit(
            session,
            Customer(id="a", name="50%", age=1, tier="x", address={"city": "Rome", "zip": "1"}, extra=1),
            Customer(id="b", name="50_", age=None, balance=nan, tier=None, address={"city": "Oslo"}, extra="1"),
            Customer(
                id="c", name="a\x00b", age=3, balance=inf, tier="", labels=["x", "y"], extra=[{"n": 1}, {"n": None}]
            ),
        )
        return session

    def test_null_is_neither_equal_nor_different(self, people: Session) -> None:
        assert ids(people, Customer.age == 1) + ids(people, Customer.age != 1) == ["a", "c"]

    def test_the_negation_of_an_unknown_is_unknown(self, people: Session) -> None:
        assert ids(people, ~(Customer.age == 1)) == ["c"]

    def test_unknown_or_true_is_true(self, people: Session) -> None:
        assert ids(people, (Customer.age == 1) | Customer.age.is_null()) == ["a", "b"]

    def test_a_list_of_many_values_finds_what_a_short_one_finds(self, people: Session) -> None:
        texts, numbers = [f"'{n}\u00e9😀\"\\" for n in range(400)], list(range(-(2**63), -(2**63) + 400))
        assert ids(people, Customer.id.in_([*texts, "c", "a"])) == ["a", "c"]
        assert ids(people, Customer.name.in_([*texts, "50_"])) == ["b"]
        assert ids(people, Customer.name.in_([*texts, "a\x00b"])) == ["c"]
        assert ids(people, ~Customer.tier.in_([*texts, "x"])) == ["c"]
        assert ids(people, Customer.age.in_([*numbers, 3])) == ["c"]
        assert ids(people, Customer.age.in_([*numbers, 3.0])) == ["c"]
        assert ids(people, Customer.age.in_([*numbers, 2**70, 1])) == ["a"]
        assert ids(people, Customer.balance.in_(numbers)) == []
        assert ids(people, Customer.address["city"].in_([*texts, "Oslo"])) == ["b"]
        for size in (300, 700):  # of one kind and any length, also where each value is a parameter of its own
            assert ids(people, Customer.balance.in_(range(1, size))) == []
            assert ids(people, Customer.extra.in_(["1", *texts[: size // 2], *texts[: size // 2]])) == ["b"]
        commit(people, Customer(id=texts[7], name=texts[7]))
        assert ids(people, Customer.id.in_(texts)) == ids(people, Customer.name.in_(texts)) == [texts[7]]

    def test_a_list_finds_what_its_values_find_one_by_one_however_long_it_is(self, store: StoreUnderTest) -> None:
        session, first = store.session(), datetime(2020, 1, 1, tzinfo=UTC)
        documents: list[Any] = [None, 1, 1.0, -0.0, 0.1, 2**60 + 1, 2**70, "1", "NaN", True, [1], {"n": 1}, {"n": 0.1}]
        reals = [None, 1.0, -0.0, 0.1, float(2**60), nan, inf, *range(6)]
        wholes = [None, 1, 0, -1, 2**60 + 1, 2**53 + 1, 2**60, *range(6)]
        rows = [
            Everything(
                id=first + timedelta(days=number), whole=whole, real=real, anything=document,
                tree={"items": [{"name": "a"}, {"name": f"n{number}"}]},
                instant=None if real is None else first + timedelta(hours=number),
                day=None if real is None else date(2020, 1, 1) + timedelta(days=number),
                data=None if real is None else b"%d" % number,
            )
            for number, (document, real, whole) in enumerate(zip(documents, reals, wholes, strict=True))
        ]  # fmt: skip
        commit(session, *rows)
        numbers = [1, 0.1, 0, 2**53 + 1, 2**60 + 1, float(2**60), 2**70, -(10**400), nan, inf]
        asked: list[tuple[Any, list[Any], Callable[[int], Any]]] = [
            (Everything.whole, numbers, lambda number: -10 - number),
            (Everything.whole, [1.5, 2.5], lambda number: number + 0.5),
            (Everything.real, numbers, lambda number: -10.5 - number),
            (Everything.real, [2**53 + 1, 2**70 + 1], lambda number: 2**53 + 1 + 2 * number),
            (Everything.anything, numbers, lambda number: -10.5 - number),
            (Everything.anything, [*numbers, "1", "NaN", "x"], lambda number: f"x{number}"),
            (Everything.anything, ["1"], lambda number: f"x{number}"),
            (Everything.anything["n"], [1.0, 0.1], lambda number: -10 - number),
            (Everything.tree["items"].any_path("name"), ["n1", "n2"], lambda number: f"x{number}"),
            (Everything.instant, [first + timedelta(hours=3)], lambda number: first - timedelta(days=number + 1)),
            (Everything.day, [date(2020, 1, 3)], lambda number: date(1999, 1, 1) + timedelta(days=number)),
            (Everything.data, [b"1", b"5"], lambda number: b"x%d" % number),
        ]  # fmt: skip

        def found(predicate: Predicate) -> set[datetime]:
            return {row.id for row in session.query().entities(Everything).where(predicate).collect()}

        for field, values, other in asked:
            one_by_one = reduce(or_, [field == value for value in values])
            some, others = found(one_by_one), found(~one_by_one)
            for listed in (values, [*map(other, range(300)), *values]):
                assert found(field.in_(listed)) == some, (str(field), values)
                assert found(~field.in_(listed)) == others, (str(field), values)

    def test_a_text_match_of_null_is_unknown_even_for_the_empty_text(self, people: Session) -> None:
        assert ids(people, ~Customer.tier.startswith("")) == []

    @pytest.mark.parametrize("match", ["startswith", "endswith", "contains"])
    def test_the_empty_text_does_not_match_and_so_passes_the_negation(self, people: Session, match: str) -> None:
        assert ids(people, ~getattr(Customer.tier, match)("x")) == ["c"]

    @pytest.mark.parametrize(("text", "expected"), [("%", ["a"]), ("_", ["b"]), ("50", ["a", "b"]), ("\\", [])])
    def test_text_matches_itself_and_nothing_else(self, people: Session, text: str, expected: list[str]) -> None:
        assert ids(people, Customer.name.contains(text)) == expected

    def test_text_after_a_zero_byte_counts(self, people: Session) -> None:
        assert ids(people, Customer.name.endswith("\x00b")) == ["c"]

    def test_nan_equals_itself(self, people: Session) -> None:
        assert ids(people, Customer.balance == nan) == ["b"]

    def test_nan_is_above_infinity(self, people: Session) -> None:
        assert ids(people, Customer.balance > inf) == ["b"]

    def test_a_number_is_not_equal_to_its_text_inside_json(self, people: Session) -> None:
        assert ids(people, Customer.extra == 1) + ids(people, Customer.extra == "1") == ["a", "b"]

    def test_a_value_of_another_kind_is_different_inside_json(self, people: Session) -> None:
        assert ids(people, Customer.extra != 1) == ["b", "c"]

    def test_an_absent_place_is_null(self, people: Session) -> None:
        assert ids(people, Customer.address["zip"].is_null()) == ["b", "c"]

    def test_an_absent_place_is_not_different_from_anything(self, people: Session) -> None:
        assert ids(people, Customer.address["zip"] != "2") == ["a"]

    def test_some_item_has_a_value(self, people: Session) -> None:
        assert ids(people, Customer.extra.any_path("n") == 1) == ["c"]

    def test_some_item_has_null(self, people: Session) -> None:
        assert ids(people, Customer.extra.any_path("n").is_null()) == ["c"]

    def test_no_item_is_a_plain_no_and_can_be_negated(self, people: Session) -> None:
        assert ids(people, ~Customer.labels.contains("x")) == ["a", "b"]

    def test_items_are_found_in_lists_of_structures(self, store: StoreUnderTest) -> None:
        session = store.fill()
        found = session.query().entities(Order).as_of(2).where(Order.lines.any_path("tags").is_null()).collect()
        assert [order.number for order in found] == ["o1"]

    def test_two_conditions_on_items_may_be_met_by_two_items(self, store: StoreUnderTest) -> None:
        lines = Order.lines
        both = (lines.any_path("sku") == "a1") & (lines.any_path("quantity") == 0)
        assert store.fill().query().entities(Order).as_of(2).where(both).count() == 1

    # --- endpoints ---

    def test_relations_are_found_by_their_left_end(self, store: StoreUnderTest) -> None:
        query = store.fill().query().relations(Subscription).where(left(Subscription).name == "Bob")
        assert [found.left_key for found in query.collect()] == ["c2"]

    def test_relations_are_found_by_both_ends(self, store: StoreUnderTest) -> None:
        both = (left(Subscription).name == "Alice") & (right(Subscription).price > 1)
        found = store.fill().query().relations(Subscription).where(both).collect()
        assert [(relation.right_key, relation.seat) for relation in found] == [("1", "s1"), ("1", "s2")]

    def test_an_end_that_does_not_exist_is_one_whose_every_field_is_missing(self, store: StoreUnderTest) -> None:
        session = store.session(Odd, Joins)
        commit(session, Odd(id="a"), Joins(left_key="a", right_key="nobody"))
        query, where = session.query().relations(Joins), right(Joins).where
        tests = [where == "", ~(where == ""), where != "", where.is_null(), ~where.is_null(), where.is_not_null()]
        assert [query.where(test).count() for test in tests] == [0, 0, 0, 1, 0, 0]

    def test_the_negation_of_a_filter_on_an_end_is_the_opposite_filter(self, store: StoreUnderTest) -> None:
        session = store.fill()
        query, age = session.query().relations(Subscription), left(Subscription).age
        pairs = [(~(age == 30), age != 30), (~(age > 30), age <= 30), (~age.is_null(), age.is_not_null())]
        both = [[query.where(test).collect() for test in pair] for pair in pairs]
        assert [first == second for first, second in both] == [True] * 3

    def test_an_end_is_read_in_the_window_of_the_relation(self, store: StoreUnderTest) -> None:
        query = store.fill().query().relations(Subscription).where(left(Subscription).age == 30)
        assert (query.as_of(1).count(), query.count()) == (2, 0)

    def test_a_path_into_an_end(self, store: StoreUnderTest) -> None:
        query = store.fill().query().relations(Subscription).where(left(Subscription).address["city"] == "Oslo")
        assert query.count() == 3

    # --- names and values ---

    def test_names_that_mean_something_to_the_storage_are_only_names(self, store: StoreUnderTest) -> None:
        session = store.session(Odd)
        odd = Odd(id="a", commit_id=7, entity_key="k", rowid=8, where="w", Where="W", größe=1.5, schema_version_id=[1])
        commit(session, odd)
        assert plain_values(session.query().entities(Odd).collect()) == plain_values([odd])

    @pytest.mark.parametrize(
        "predicate",
        [
            Odd.commit_id == 7,
            Odd.entity_key == "k",
            Odd.rowid > 7,
            Odd.where == "w",
            Odd.Where == "W",
            Odd.größe < 2,
            Odd.fields_json == "",
            Odd.schema_version_id.any_path("") == 1,
        ],
        ids=lambda predicate: predicate.operand.name,
    )
    def test_odd_names_can_be_filtered_by(self, store: StoreUnderTest, predicate: Predicate) -> None:
        session = store.session(Odd)
        a = Odd(id="a", commit_id=7, entity_key="k", rowid=8, where="w", Where="W", größe=1.5, schema_version_id=[1])
        b = Odd(id="b", fields_json="no", größe=3)
        commit(session, a, b)
        assert [found.id for found in session.query().entities(Odd).where(predicate).collect()] == ["a"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"text": ""},
            {"text": "\x00 ' \" \\ % _ 💡 e\u0301 \r\n\t"},
            {"whole": 2**63 - 1},
            {"whole": -(2**63)},
            {"real": 5e-324},
            {"real": 1.7976931348623157e308},
            {"real": inf},
            {"real": 0.1 + 0.2},
            {"truth": False},
            {"instant": datetime.min.replace(tzinfo=UTC)},
            {"instant": datetime.max.replace(tzinfo=UTC)},
            {"instant": datetime(2024, 3, 31, 2, 30, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))},
            {"instant": datetime(2024, 1, 1, microsecond=1)},
            {"day": date.min},
            {"day": date.max},
            {"data": b""},
            {"data": bytes(range(256))},
            {"numbers": [0.1, inf, -1e300]},
            {"instants": {"a b": datetime(2024, 1, 1, tzinfo=UTC)}},
            {"blobs": [b"", b"\xff"]},
            {"mixed": "1"},
            {"mixed": 1},
            {"tree": {"name": "a", "child": {"name": "b", "items": [{}]}}},
            {"anything": {"": [None, True, 1.5, "\x00", {"ü": []}]}},
        ],
        ids=repr,
    )
    def test_a_value_is_read_as_it_was_written(self, store: StoreUnderTest, fields: dict[str, Any]) -> None:
        session = store.session(Everything)
        written = Everything(id=datetime(2024, 1, 1, tzinfo=UTC), **fields)
        commit(session, written)
        assert plain_values(session.query().entities(Everything).collect()) == plain_values([written])

    def test_nan_is_read_as_nan(self, store: StoreUnderTest) -> None:
        session = store.session(Everything)
        commit(session, Everything(id=datetime(2024, 1, 1), real=nan, numbers=[nan]))
        (found,) = session.query().entities(Everything).collect()
        assert [isnan(number) for number in (found.real or 0, *found.numbers)] == [True, True]
