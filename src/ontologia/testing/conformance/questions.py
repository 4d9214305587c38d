"""The questions every engine and every dialect must answer alike, over the history of `shop`.

    assert [question.name for question in QUESTIONS if not question.is_answered(session.query())] == []

`question.ask` takes the root of a query (`session.query()`, or `QueryRoot(source)` for any source that can answer a
plan); `question.answer` is what the reference model says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from math import inf, nan
from typing import Any

from ontologia.model import left, right
from ontologia.query import aggregates as of
from ontologia.query.builder import QueryRoot
from ontologia.testing.conformance.answers import are_close, make_plain
from ontologia.testing.conformance.shop import Customer, Follows, Order, Placed, Product, Subscription, history
from ontologia.testing.reference import ReferenceStore

Ask = Callable[[QueryRoot], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A named query, from the root to its ending."""

    name: str
    ask: Ask

    @property
    def kind(self) -> str:
        """What it is about: the first word of its name."""
        return self.name.partition(":")[0]

    def is_answered(self, root: QueryRoot) -> bool:
        """Whether a store answers it as the reference model does."""
        try:
            return are_close(make_plain(self.ask(root)), make_plain(self.answer()), 0.0)
        except Exception as problem:
            problem.add_note(f"asked: {self.name}")
            raise

    def answer(self) -> Any:
        """The reference model's answer."""
        return self.ask(fill_reference().query())

    def __str__(self) -> str:
        return self.name


@cache
def fill_reference() -> ReferenceStore:
    """The reference model with the whole history in it."""
    store = ReferenceStore()
    for commit in history():
        store.commit(commit)
    return store


_FILTERS: dict[str, Any] = {
    "text equal": lambda: Customer.name == "Alice",
    "text not equal leaves out nulls": lambda: Customer.tier != "Gold",
    "text above in code points": lambda: Customer.name > "Zo",
    "key equal": lambda: Customer.id == "ç5",
    "key among": lambda: Customer.id.in_(["c1", "c4", "nobody"]),
    "key range": lambda: (Customer.id >= "c2") & (Customer.id < "c4"),
    "indexed field equal": lambda: Customer.tier == "",
    "int at its upper limit": lambda: Customer.age == 2**63 - 1,
    "int below more than 64 bits": lambda: Customer.age < 2**70,
    "int compared with a fraction": lambda: Customer.age > 30.5,
    "int among": lambda: Customer.age.in_([0, 31, 44]),
    "among nothing": lambda: Customer.age.in_([]),
    "not among nothing": lambda: ~Customer.age.in_([]),
    "float equals NaN": lambda: Customer.balance == nan,
    "NaN is above infinity": lambda: Customer.balance > inf,
    "float equals negative zero": lambda: Customer.balance == -0.0,
    "float at most minus infinity": lambda: Customer.balance <= -inf,
    "bool is true": lambda: Customer.active.is_true(),
    "bool is false": lambda: Customer.active.is_false(),
    "bytes equal": lambda: Customer.token == b"\x00\xff",
    "bytes above": lambda: Customer.token > b"\x00",
    "instant equal, given in another zone": lambda: Customer.joined == datetime(2024, 1, 5, 12),
    "instant at the end of time": lambda: Customer.joined >= datetime.max.replace(tzinfo=UTC),
    "instant before": lambda: Customer.joined < datetime(2000, 1, 1, tzinfo=UTC),
    "date among": lambda: Customer.born.in_([date.min, date.max]),
    "date above": lambda: Customer.born > date(1, 1, 1),
    "null": lambda: Customer.age.is_null(),
    "not null": lambda: Customer.tier.is_not_null(),
    "negation of an unknown stays unknown": lambda: ~(Customer.age > 40),
    "unknown or true": lambda: (Customer.age > 40) | (Customer.name == "Bob"),
    "starts with a percent sign's text": lambda: Customer.name.startswith("100%_"),
    "contains an underscore": lambda: Customer.name.contains("_"),
    "ends with an emoji": lambda: Customer.name.endswith("💡"),
    "matching is case-sensitive": lambda: Customer.name.startswith("b"),
    "starts with nothing": lambda: Customer.tier.startswith(""),
    "does not start with nothing": lambda: ~Customer.tier.startswith(""),
    "path of one step": lambda: Customer.address["city"] == "Oslo",
    "path that is absent for some": lambda: Customer.address.path("zip").is_null(),
    "path compared with not equal": lambda: Customer.address.path("zip") != "00100",
    "path of two steps": lambda: Customer.address.path("point.lat") > 40,
    "any of another kind is not equal": lambda: Customer.extra != "text",
    "any of another kind is not above": lambda: Customer.extra > 2,
    "path into any": lambda: Customer.extra["n"] == 1,
    "list contains": lambda: Customer.labels.contains("a"),
    "no item of the list": lambda: ~Customer.labels.contains("a"),
}

_ORDERS: dict[str, Any] = {
    "nulls first ascending": lambda q: q.entities(Customer).order_by(Customer.age),
    "nulls last descending": lambda q: q.entities(Customer).order_by(Customer.age, descending=True),
    "NaN last ascending": lambda q: q.entities(Customer).order_by(Customer.balance),
    "NaN first descending": lambda q: q.entities(Customer).order_by(Customer.balance, descending=True),
    "two orders": lambda q: q.entities(Customer).order_by(Customer.active).order_by(Customer.name, descending=True),
    "by a key that is a number": lambda q: q.entities(Product).order_by(Product.sku),
    "by identity, which is text": lambda q: q.entities(Product),
    "by a field named order": lambda q: q.entities(Product).order_by(Product.order).order_by(Product.price),
    "by a place inside a structure": lambda q: q.entities(Customer).order_by(Customer.address["zip"]),
    "by any": lambda q: q.entities(Customer).order_by(Customer.extra, descending=True),
    "a page": lambda q: q.entities(Customer).order_by(Customer.name).limit(2).offset(1),
    "offset alone": lambda q: q.entities(Customer).offset(3),
    "limit of zero": lambda q: q.entities(Customer).limit(0),
    "offset past the end": lambda q: q.entities(Customer).offset(100),
    "relations by an endpoint's key": lambda q: q.relations(Subscription).order_by(Subscription.right_key, True),
}

_WINDOWS: dict[str, Any] = {
    "latest": lambda query: query,
    "as of 0": lambda query: query.as_of(0),
    "as of 1": lambda query: query.as_of(1),
    "as of 2": lambda query: query.as_of(2),
    "as of 99": lambda query: query.as_of(99),
    "history": lambda query: query.with_history(),
    "since 0": lambda query: query.history_since(0),
    "since 2": lambda query: query.history_since(2),
    "since 99": lambda query: query.history_since(99),
}

_SOURCES: dict[str, Any] = {
    "customers": lambda q: q.entities(Customer),
    "adults": lambda q: q.entities(Customer).where(Customer.age >= 18),
    "gold customers": lambda q: q.entities(Customer).where(Customer.tier == "Gold"),
    "customers by balance": lambda q: q.entities(Customer).order_by(Customer.balance),
    "the first three customers": lambda q: q.entities(Customer).limit(3),
    "products": lambda q: q.entities(Product),
    "orders with an empty line": lambda q: q.entities(Order).where(Order.lines.any_path("quantity") == 0),
    "keyed relations": lambda q: q.relations(Subscription),
    "unkeyed relations": lambda q: q.relations(Follows),
    "relations by their left end": lambda q: q.relations(Subscription).where(left(Subscription).tier == "Gold"),
    "relations by their right end": lambda q: q.relations(Subscription).where(right(Subscription).price < 1),
    "relations without such an end": lambda q: q.relations(Follows).where(~(right(Follows).age > 40)),
    "relations of one instance": lambda q: q.relations(Subscription).where(Subscription.seat == "s1"),
    "one hop": lambda q: q.entities(Customer).via(Subscription),
    "one hop backwards": lambda q: q.entities(Product).via(Subscription),
    "two hops": lambda q: q.entities(Customer).via(Follows).via(Subscription),
    "against the arrow": lambda q: q.entities(Customer).via(Follows, reverse=True),
    "there and back": lambda q: q.entities(Customer).via(Subscription).via(Subscription),
    "filtered at the source": lambda q: q.entities(Customer).where(Customer.id == "c1").via(Subscription),
    "filtered by relation": lambda q: q.entities(Customer).via(Subscription).where(Subscription.seats > 1),
    "filtered by end": lambda q: q.entities(Customer).via(Subscription).where(Product.price > 1),
    "filtered at both steps": lambda q: (
        q.entities(Customer).via(Follows).where(Follows.weight.is_not_null()).via(Placed).where(Order.note.is_null())
    ),
    "paths by age, a page": lambda q: q.entities(Customer).order_by(Customer.age).via(Subscription).limit(2).offset(1),
    "ends only": lambda q: q.entities(Customer).via(Subscription).without_relations(),
    "ends of two hops": lambda q: q.entities(Customer).via(Follows).via(Follows).without_relations(),
}

_NUMBERS: dict[str, Any] = {
    "count": lambda q: q.entities(Customer).count(),
    "count of relations": lambda q: q.relations(Subscription).count(),
    "count over history": lambda q: q.entities(Customer).with_history().count(),
    "count as of": lambda q: q.entities(Customer).as_of(1).count(),
    "count of nothing": lambda q: q.entities(Customer).where(Customer.name == "nobody").count(),
    "count where": lambda q: q.entities(Customer).count_where(Customer.age > 40),
    "sum of ints": lambda q: q.relations(Subscription).sum(Subscription.seats),
    "sum of nothing": lambda q: q.entities(Product).where(Product.price < 0).sum(Product.price),
    "sum of floats": lambda q: q.entities(Product).sum(Product.price),
    "sum with NaN": lambda q: q.entities(Customer).sum(Customer.balance),
    "sum of both infinities": lambda q: q.entities(Customer).where(Customer.id.in_(["c4", "ç5"])).sum(Customer.balance),
    "average": lambda q: q.entities(Product).avg(Product.price),
    "average of optional ints": lambda q: q.entities(Product).avg(Product.group),
    "least number": lambda q: q.entities(Customer).min(Customer.age),
    "greatest number": lambda q: q.entities(Customer).max(Customer.age),
    "greatest float is NaN": lambda q: q.entities(Customer).max(Customer.balance),
    "least float": lambda q: q.entities(Customer).min(Customer.balance),
    "least text": lambda q: q.entities(Customer).min(Customer.name),
    "least instant": lambda q: q.entities(Customer).min(Customer.joined),
    "greatest date": lambda q: q.entities(Customer).max(Customer.born),
    "least bytes": lambda q: q.entities(Customer).with_history().min(Customer.token),
    "greatest truth": lambda q: q.entities(Customer).max(Customer.active),
    "sum inside any": lambda q: q.entities(Customer).sum(Customer.extra),
    "greatest inside a structure": lambda q: (
        q.entities(Customer).with_history().max(Customer.address.path("point.lat"))
    ),
    "mean length of a text": lambda q: q.entities(Customer).avg_len(Customer.name),
    "mean length of a list": lambda q: q.entities(Order).avg_len(Order.lines),
}

_GROUPS: dict[str, Any] = {
    "by a text that may be null": lambda q: q.entities(Customer).group_by(Customer.tier).agg(n=of.count()),
    "by a bool": lambda q: (
        q.entities(Customer).group_by(Customer.active).agg(n=of.count(), least=of.min(Customer.name))
    ),
    "by NaN": lambda q: q.entities(Customer).group_by(Customer.balance).agg(n=of.count()),
    "by bytes": lambda q: q.entities(Customer).with_history().group_by(Customer.token).agg(n=of.count()),
    "by an instant": lambda q: q.entities(Customer).group_by(Customer.joined).agg(n=of.count()),
    "by a date": lambda q: q.entities(Customer).group_by(Customer.born).agg(n=of.count()),
    "by a place inside a structure": lambda q: (
        q.entities(Customer).with_history().group_by(Customer.address["city"]).agg(n=of.count())
    ),
    "by a list": lambda q: q.entities(Customer).with_history().group_by(Customer.labels).agg(n=of.count()),
    "by any": lambda q: q.entities(Customer).group_by(Customer.extra).agg(n=of.count()),
    "by two fields": lambda q: q.entities(Customer).group_by(Customer.active, Customer.tier).agg(n=of.count()),
    "by a field named group": lambda q: (
        q.entities(Product).group_by(Product.group).agg(total=of.sum(Product.price), mean=of.avg(Product.price))
    ),
    "relations by an end": lambda q: (
        q.relations(Subscription).group_by(Subscription.left_key).agg(n=of.count(), seats=of.sum(Subscription.seats))
    ),
    "having a count": lambda q: (
        q.entities(Product).with_history().group_by(Product.sku).having(of.count() > 1).agg(n=of.count())
    ),
    "having two conditions": lambda q: (
        q.relations(Subscription)
        .group_by(Subscription.right_key)
        .having(of.count() >= 1, of.sum(Subscription.seats) < 9)
        .agg(n=of.count())
    ),
    "having an unknown": lambda q: (
        q.entities(Customer).group_by(Customer.active).having(of.max(Customer.tier) >= "G").agg(n=of.count())
    ),
    "having a date": lambda q: (
        q.relations(Subscription)
        .group_by(Subscription.left_key)
        .having(of.max(Subscription.since) >= date(2024, 2, 2))
        .agg(n=of.count())
    ),
    "having an instant": lambda q: (
        q.entities(Customer)
        .with_history()
        .group_by(Customer.name)
        .having(of.min(Customer.joined) <= datetime(2024, 1, 5, 12, tzinfo=UTC))
        .agg(n=of.count())
    ),
    "groups of nothing": lambda q: (
        q.entities(Customer).where(Customer.name == "nobody").group_by(Customer.tier).agg(n=of.count())
    ),
    "groups as of": lambda q: q.entities(Customer).as_of(2).group_by(Customer.tier).agg(n=of.count()),
}


def _ask_filtered(predicate: Callable[[], Any], windowed: Callable[[Any], Any]) -> Ask:
    return lambda root: windowed(root.entities(Customer).where(predicate())).collect()


def _ask_all(source: Callable[[QueryRoot], Any], windowed: Callable[[Any], Any] = lambda query: query) -> Ask:
    return lambda root: windowed(source(root)).collect()


QUESTIONS: list[Question] = [
    *(
        Question(f"filter: {name} ({window})", _ask_filtered(predicate, _WINDOWS[window]))
        for name, predicate in _FILTERS.items()
        for window in ("latest", "history")
    ),
    *(Question(f"order: {name}", _ask_all(query)) for name, query in _ORDERS.items()),
    *(
        Question(f"window: {name} ({window})", _ask_all(source, windowed))
        for name, source in _SOURCES.items()
        for window, windowed in _WINDOWS.items()
    ),
    *(Question(f"number: {name}", ask) for name, ask in _NUMBERS.items()),
    *(Question(f"groups: {name}", ask) for name, ask in _GROUPS.items()),
]
"""Every question, each with a name that is unique."""

KINDS = sorted({question.kind for question in QUESTIONS})
