"""Answers that are easily nearly right: large numbers, odd texts, lists, filters used twice, ends and times."""

from __future__ import annotations

from builtins import sum as total
from typing import Any

import pytest
from typing_extensions import TypedDict

from ontologia.errors import CommitAfterHeadWarning
from ontologia.model import Entity, Field, Predicate, Relation, left, right
from ontologia.query.aggregates import avg, count, max, sum
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit

SNOWFLAKE = 1234567890123456789
WHOLE = 2**53


class Line(TypedDict, total=False):
    """An item with parts."""

    sku: str
    tags: list[str]


MEANS = {
    "cancel": (2**63 - 1, -(2**63)),
    "greatest": (2**63 - 1, 2**63 - 1, 2**63 - 1),
    "least": (-(2**63), -(2**63)),
    "near": (2**53 + 1, -(2**53), 2**53 + 1, -(2**53)),
    "nearly": (2**62 + 3, -(2**62), 1, 2),
    "one": (7,),
    "small": (-1, -2, -4),
    "wide": (2**31, -(2**31) - 1, 2**32, -(2**32) - 5),
}
"""Integers that doubles cannot add up, and some that they can."""


class Tag(Entity):
    """Numbers and texts, alone and inside structures."""

    id: Field[str] = Field(primary_key=True)
    n: Field[int] = Field(default=0, index=True)
    x: Field[float] = Field(default=0.0)
    name: Field[str] = Field(default="", index=True)
    true: Field[int] = Field(default=0)
    ids: Field[list[int]] = Field(default_factory=list)
    ref: Field[dict[str, int]] = Field(default_factory=dict)
    words: Field[list[str] | None] = Field(default=None)
    lines: Field[list[Line]] = Field(default_factory=list)
    anything: Field[Any] = Field(default=None)


class Pair(Relation[Tag, Tag], name="5\" pair's"):
    """Between tags."""

    n: Field[int] = Field(default=0)


def _find(session: Session, predicate: Predicate) -> list[str]:
    return [tag.id for tag in session.query().entities(Tag).where(predicate).collect()]


class ExactnessConformance(ConformanceSuite):
    """Exactness."""

    @pytest.fixture
    def numbers(self, store: StoreUnderTest) -> Session:
        """Two rows whose numbers are one double."""
        session = store.session(Tag, Pair)
        commit(
            session,
            Tag(id="a", n=WHOLE, x=float(WHOLE), ids=[SNOWFLAKE], ref={"k": SNOWFLAKE}, anything=2**60),
            Tag(id="b", n=WHOLE + 1, x=1.5, ids=[SNOWFLAKE + 1], ref={"k": SNOWFLAKE + 1}, anything=2**60 - 1),
        )
        return session

    @pytest.mark.parametrize(
        ("predicate", "expected"),
        [
            (Tag.ids.contains(SNOWFLAKE), ["a"]),
            (Tag.ref["k"] == SNOWFLAKE, ["a"]),
            (Tag.ref["k"] != SNOWFLAKE, ["b"]),
            (Tag.ref["k"] > SNOWFLAKE, ["b"]),
            (Tag.ref["k"].in_([SNOWFLAKE, 5, 0.5]), ["a"]),
            (Tag.ref["k"] < 1e300, ["a", "b"]),
            (Tag.ref["k"] < 2**70, ["a", "b"]),
            (Tag.n == float(WHOLE), ["a"]),
            (Tag.n > float(WHOLE), ["b"]),
            (Tag.n != float(WHOLE), ["b"]),
            (Tag.n.in_([float(WHOLE), 0.5]), ["a"]),
            (Tag.n < 2**64, ["a", "b"]),
            (Tag.n == 0.5, []),
            (Tag.x == WHOLE, ["a"]),
            (Tag.x == WHOLE + 1, []),
            (Tag.x < WHOLE + 1, ["a", "b"]),
            (Tag.x >= 2, ["a"]),
            (Tag.x.in_([WHOLE + 1, 1.5]), ["b"]),
            (Tag.x < 10**400, ["a", "b"]),
            (Tag.anything == 2.0**60, ["a"]),
            (Tag.anything < 2.0**60, ["b"]),
        ],
        ids=str,
    )
    def test_a_number_is_equal_to_itself_alone(
        self, numbers: Session, predicate: Predicate, expected: list[str]
    ) -> None:
        assert _find(numbers, predicate) == expected

    def test_large_numbers_inside_a_structure_are_sorted_exactly(self, numbers: Session) -> None:
        tags = numbers.query().entities(Tag)
        assert [
            [tag.id for tag in tags.order_by(operand, descending=down).collect()]
            for operand in (Tag.ref["k"], Tag.anything)
            for down in (False, True)
        ] == [["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"]]

    def test_the_greatest_of_declared_integers_is_an_integer(self, numbers: Session) -> None:
        greatest = numbers.query().entities(Tag).max(Tag.ref["k"])
        assert (type(greatest), greatest) == (int, SNOWFLAKE + 1)

    def test_a_group_is_kept_by_an_exact_comparison(self, numbers: Session) -> None:
        groups = numbers.query().entities(Tag).group_by(Tag.id)
        found = groups.having(sum(Tag.n) > float(WHOLE), max(Tag.ref["k"]) == SNOWFLAKE + 1).agg(n=count())
        assert found == [{"id": "b", "n": 1}]

    def test_the_mean_of_integers_is_that_of_their_exact_sum(self, store: StoreUnderTest) -> None:
        session = store.session()
        commit(
            session,
            *(
                Tag(id=f"{name} {place}", name=name, n=value, ref={"k": value})
                for name, values in MEANS.items()
                for place, value in enumerate(values)
            ),
        )
        tags = session.query().entities(Tag)
        wanted = {name: float(total(values)) / len(values) for name, values in MEANS.items()}
        found = tags.group_by(Tag.name).agg(mean=avg(Tag.n), inside=avg(Tag.ref["k"]))
        assert [(row["mean"], row["inside"]) for row in found] == [
            (wanted[name], wanted[name]) for name in sorted(MEANS)
        ]
        kept = tags.where(Tag.name == "cancel").group_by(Tag.name).having(avg(Tag.n) == -0.5).agg(n=count())
        assert (kept, tags.where(Tag.name == "none").avg(Tag.n)) == ([{"name": "cancel", "n": 2}], None)

    def test_groups_by_structured_values_are_canonical_json_in_arrow(self, store: StoreUnderTest) -> None:
        session = store.session(Tag)
        commit(session, Tag(id="a", anything=[1e-7]), Tag(id="b", anything=[2.0**63]), Tag(id="c", anything=[-0.0]))
        tags = session.query().entities(Tag)
        groups = tags.group_by(Tag.anything).to_arrow(n=count())
        assert sorted(groups["anything"].to_pylist()) == sorted(tags.to_arrow()["anything"].to_pylist())

    # --- zero bytes ---

    @pytest.fixture
    def cut(self, store: StoreUnderTest) -> Session:
        session = store.session(Tag, Pair)
        whole = "ab\x00cd"
        commit(
            session,
            Tag(id="a", name=whole, words=[whole], lines=[{"sku": whole}], anything=whole),
            Tag(id="b", name="ab", words=["ab"], lines=[{"sku": "ab"}], anything="ab"),
        )
        return session

    @pytest.mark.parametrize(
        ("predicate", "expected"),
        [
            (Tag.name == "ab", ["b"]),
            (Tag.name == "ab\x00cd", ["a"]),
            (Tag.name > "ab", ["a"]),
            (Tag.name <= "ab", ["b"]),
            (Tag.name < "ab\x00ce", ["a", "b"]),
            (Tag.name.in_(["ab\x00cd", "x"]), ["a"]),
            (Tag.name.endswith("cd"), ["a"]),
            (Tag.words.contains("ab"), ["b"]),
            (Tag.words.contains("ab\x00cd"), ["a"]),
            (Tag.lines.any_path("sku") == "ab", ["b"]),
            (Tag.lines.any_path("sku").endswith("\x00cd"), ["a"]),
            (Tag.anything == "ab", ["b"]),
            (Tag.anything.contains("d"), ["a"]),
        ],
        ids=str,
    )
    def test_text_does_not_end_at_a_zero_byte(self, cut: Session, predicate: Predicate, expected: list[str]) -> None:
        assert _find(cut, predicate) == expected

    @pytest.mark.parametrize("more", [["x"], [2**63, 0.5, 7], [f"t{n}" for n in range(300)], list(range(300))], ids=len)
    def test_a_list_of_any_values_may_have_a_text_with_a_zero_byte(self, cut: Session, more: list[Any]) -> None:
        assert _find(cut, Tag.anything.in_(["ab\x00cd", *more])) == ["a"]
        assert _find(cut, Tag.lines.any_path("sku").in_(["ab\x00cd", *more])) == ["a"]

    def test_the_length_of_a_text_goes_beyond_a_zero_byte(self, cut: Session) -> None:
        tags = cut.query().entities(Tag)
        assert (tags.avg_len(Tag.name), tags.avg_len(Tag.anything)) == (3.5, 3.5)

    def test_groups_and_orders_tell_texts_with_zero_bytes_apart(self, cut: Session) -> None:
        tags = cut.query().entities(Tag)
        groups = tags.group_by(Tag.name).agg(n=count())
        assert [row["name"] for row in groups] == [tag.name for tag in tags.order_by(Tag.name).collect()]
        assert [row["name"] for row in groups] == ["ab", "ab\x00cd"]

    # --- lists, filters, names ---

    def test_contains_is_about_items_of_a_list_and_about_parts_of_a_text(self, store: StoreUnderTest) -> None:
        session = store.session(Tag)
        commit(
            session,
            Tag(id="a", words=["eu"], lines=[{"sku": "a1", "tags": ["x"]}], anything=["a1", 7]),
            Tag(id="b", lines=[{"sku": "b2", "tags": ["y", "x1"]}], anything="a12"),
        )
        tests: list[Predicate] = [
            Tag.words.contains("eu"),
            ~Tag.words.contains("no"),
            Tag.lines.any_path("sku").contains("1"),
            Tag.lines.any_path("tags").contains("x"),
            Tag.anything.contains("a1"),
            Tag.anything.contains(7),
            Tag.anything.contains(""),
        ]
        assert [_find(session, test) for test in tests] == [["a"], ["a"], ["a"], ["a"], ["a", "b"], ["a"], ["b"]]

    def test_a_filter_may_be_used_twice_in_one_query(self, numbers: Session) -> None:
        large = Tag.n > WHOLE
        tags = numbers.query().entities(Tag)
        either = (large & (Tag.x > 1)) | (large & (Tag.x <= 1))
        assert [tags.where(either).count(), tags.where(large).where(large).count()] == [1, 1]
        assert tags.where(large).count_where(large) == 1

    def test_a_field_may_be_called_true(self, store: StoreUnderTest) -> None:
        session = store.session(Tag)
        commit(session, Tag(id="a", true=1))
        commit(session, Tag(id="a", true=2))
        tags = session.query().entities(Tag)
        assert (tags.where(Tag.true == 2).count(), [tag.true for tag in tags.with_history().collect()]) == (1, [1, 2])

    # --- ends ---

    @pytest.fixture
    def pairs(self, store: StoreUnderTest) -> Session:
        session = store.session(Tag, Pair)
        commit(session, Tag(id="a", n=41), Tag(id="b", n=28), Tag(id="c", n=5), Tag(id="d", name="end"))
        joined = (("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("c", "nobody"))
        commit(session, [Pair(left_key=one, right_key=other) for one, other in joined])
        return session

    def test_each_end_comes_once_in_the_order_asked_for(self, pairs: Session) -> None:
        ends = pairs.query().entities(Tag).via(Pair).without_relations()
        assert [
            [tag.id for tag in query.collect()]
            for query in (ends, ends.order_by(Tag.n), ends.order_by(Tag.n, descending=True), ends.limit(2))
        ] == [["b", "c", "d"], ["d", "c", "b"], ["b", "c", "d"], ["b", "c"]]

    def test_groups_can_be_made_by_a_field_of_an_end(self, pairs: Session) -> None:
        found = pairs.query().relations(Pair).group_by(right(Pair).name).agg(pairs=count())
        assert found == [{"name": None, "pairs": 1}, {"name": "", "pairs": 3}, {"name": "end", "pairs": 1}]

    def test_groups_by_the_same_field_of_both_ends_are_named_after_their_side(self, pairs: Session) -> None:
        found = pairs.query().relations(Pair).where(right(Pair).n > 5).group_by(left(Pair).n, right(Pair).n)
        assert found.agg(pairs=count()) == [{"left.n": 41, "right.n": 28, "pairs": 1}]

    def test_relations_in_a_path_have_their_ends(self, pairs: Session) -> None:
        (path,) = pairs.query().entities(Tag).where(Tag.id == "b").via(Pair).collect()
        (relation,) = path.relations
        assert (relation.left, relation.right) == (path.source, path.end)

    # --- times ---

    def test_a_commit_that_is_not_there_yet_is_said_so(self, numbers: Session) -> None:
        tags = numbers.query().entities(Tag)
        with pytest.warns(CommitAfterHeadWarning, match="commit 99 is not there yet"):
            found = tags.as_of(99).collect()
        assert (len(found), found.diagnostics) == (
            2,
            [{"reason": "commit_after_head", "commit_id": 99, "head_commit_id": 1}],
        )

    @pytest.mark.parametrize("verb", ["as_of", "history_since"])
    def test_a_negative_commit_is_an_error(self, numbers: Session, verb: str) -> None:
        with pytest.raises(ValueError, match="zero or more, not -1"):
            getattr(numbers.query().entities(Tag), verb)(-1)
