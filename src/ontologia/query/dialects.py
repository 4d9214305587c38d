"""Where SQLite, DuckDB and Spark say the same thing differently. Everything else is the compiler's."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar

from sqlglot import exp

from ontologia.errors import SumOverflowError, ValidationError
from ontologia.model import instant_text
from ontologia.model.values import plain
from ontologia.query.stored_rows import SQL_TYPES

Node = exp.Expression
ZERO_BYTE = "\\u0000"  # as JSON text has it
HALF = 2**32
COMPARISONS: dict[str, Callable[..., Node]] = {
    "eq": exp.EQ,
    "ne": exp.NEQ,
    "gt": exp.GT,
    "ge": exp.GTE,
    "lt": exp.LT,
    "le": exp.LTE,
}


def parameter(name: str) -> exp.Placeholder:
    return exp.Placeholder(this=name)


def call(name: str, *arguments: Any) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[exp.convert(argument, copy=True) for argument in arguments])


def equal(left: Node, right: Any) -> exp.EQ:
    return exp.EQ(this=left.copy(), expression=exp.convert(right, copy=True))


def case(*branches: tuple[Node, Node], default: Node | None = None) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=test, true=result) for test, result in branches], default=default)


@dataclass(frozen=True, slots=True)
class Place:
    """A place inside a JSON document: the document, and the path as SQL."""

    document: Node
    path: Node

    @classmethod
    def at(cls, document: Node, steps: tuple[str, ...]) -> Place:
        return cls(document, exp.Literal.string("$" + join_dotted(steps)))


def join_dotted(steps: tuple[str, ...]) -> str:
    return "".join(f'."{step}"' for step in steps)  # a step is an identifier: nothing in it needs escaping


def mean_of(total: Node, subject: Node) -> Node:
    """The mean of integers, whose total is exact but for its one rounding to a double."""
    known = call("nullif", exp.Count(this=subject.copy()), 0)
    return exp.Div(this=exp.paren(total), expression=known, typed=True, safe=True)


def total_of_halves(upper: Node, subject: Node) -> Node:
    """The total of integers as a double, by their upper half and the rest of each: neither total leaves 64 bits."""
    lower = exp.Sum(this=exp.Mod(this=subject.copy(), expression=exp.Literal.number(HALF)))
    shifted = exp.Mul(this=exp.cast(exp.Sum(this=upper), "DOUBLE"), expression=exp.Literal.number(HALF))
    return exp.Add(this=shifted, expression=lower)


def _in_quotes(text: Node) -> Node:
    return call("concat", '"', text, '"')


class Dialect(ABC):
    """One SQL engine's way of saying it. `name` is sqlglot's name for it."""

    name: str
    kinds: ClassVar[Mapping[str, tuple[str, ...]]]
    null_kind: str
    list_kind: str
    exact_numbers: ClassVar[bool] = False
    """Whether integers and floats are compared by value; where they are not, see `numbers`."""
    takes_lists: ClassVar[bool] = False
    """Whether a list of values can be one parameter."""
    in_turn: ClassVar[str] = "inner"
    """The inner join of an engine that takes what it joins in the order they are given, if it can be told to."""

    def render(self, tree: Node, *, pretty: bool = False) -> str:
        return tree.sql(dialect=self.name, pretty=pretty, copy=False)

    @abstractmethod
    def encode(self, scalar: str | None, value: Any) -> Any:
        """A value as a parameter of this engine; `scalar` is None for a place inside JSON."""

    def constant(self, scalar: str | None, name: str | None) -> Node:
        """The value of a parameter as a column of a scalar type, or of JSON; without a name, nothing."""
        value = exp.null() if name is None else parameter(name)
        return exp.cast(value, SQL_TYPES.get(scalar or "", "TEXT"))

    def as_json(self, scalar: str, value: Node) -> Node:
        """The canonical JSON text of a stored scalar."""
        raise ValidationError(f"{self.name} carries no {scalar} of an earlier schema version over into JSON")

    def is_listed(self, subject: Node, values: Node, scalar: str | None) -> Node:
        """Whether a text, int or float is in a list that is one parameter."""
        return exp.In(this=subject.copy(), query=self.list_items(values, scalar).subquery())

    def list_items(self, values: Node, scalar: str | None) -> exp.Select:
        """The items of a list that is one parameter."""
        raise ValidationError(f"{self.name} takes no lists as parameters")

    def encode_list(self, values: list[Any]) -> Any:
        """Texts, integers, or floats as texts, as the parameter that `list_items` expects."""
        return values

    @abstractmethod
    def encode_match(self, text: str) -> Any:
        """The text of a match as the parameter that `match` expects."""

    @abstractmethod
    def match(self, op: str, subject: Node, text: Node) -> Node:
        """startswith, endswith and contains: exact, case-sensitive, without wildcards."""

    def rare(self, test: Node) -> Node:
        """A test of an indexed field, said to pass for few rows, for engines that would rather read in key order."""
        return test

    def text_length(self, text: Node) -> Node:
        """How many characters a text has."""
        return exp.Length(this=text)

    @abstractmethod
    def total(self, subject: Node, scalar: str | None) -> Node: ...

    @abstractmethod
    def mean(self, subject: Node, scalar: str | None) -> Node: ...

    # --- inside JSON ---

    def place(self, document: Node, steps: tuple[str, ...]) -> Place:
        """A place inside a column of JSON text."""
        return Place.at(document, steps)

    @abstractmethod
    def json_kind(self, place: Place) -> Node:
        """The JSON type at a place; NULL where nothing is there."""

    @abstractmethod
    def json_scalar(self, place: Place, kind: str) -> Node:
        """The value at a place, which is known to hold a `number` or `text`."""

    @abstractmethod
    def json_text(self, place: Place) -> Node:
        """The JSON text at a place."""

    @abstractmethod
    def json_truth(self, place: Place) -> Node:
        """The boolean at a place; NULL where there is none."""

    @abstractmethod
    def json_integer(self, place: Place) -> Node:
        """The integer at a place, exactly; NULL where there is none, or a wider one than 64 bits."""

    @abstractmethod
    def json_items(self, place: Place) -> Node:
        """How many items the list at a place has."""

    @abstractmethod
    def some_item(self, place: Place, steps: tuple[str, ...], name: str, test: Callable[[Place], Node]) -> Node:
        """Whether some item of the list at a place passes a test of what is at `steps` inside it.

        `name` is what the statement calls the item; one inside another has another name.
        """

    def json_value(self, place: Place, kind: str) -> Node:
        """The number or text at a place; NULL where there is something else."""
        return case((self.is_kind(place, kind), self.json_scalar(place, kind)))

    def json_length(self, place: Place) -> Node:
        """The length of the list or text at a place; NULL where there is neither."""
        text = self.text_length(self.json_scalar(place, "text"))
        return case((self.is_list(place), self.json_items(place)), (self.is_kind(place, "text"), text))

    def json_order(self, place: Place) -> list[Node]:
        """What a place is sorted by: numbers by value, texts after them, and everything else as nothing."""
        number = self.json_value(place, "number")
        if self.exact_numbers:
            return [number, self.json_value(place, "text")]
        # Of integers that are one double the integers decide; a double that large is a whole number itself.
        whole = exp.TryCast(this=number.copy(), to=exp.DataType.build("BIGINT"), safe=True)
        return [number, call("coalesce", self.json_integer(place), whole), self.json_value(place, "text")]

    def is_kind(self, place: Place, kind: str) -> Node:
        return self.json_kind(place).isin(*self.kinds[kind])

    def is_list(self, place: Place) -> Node:
        return equal(self.json_kind(place), self.list_kind)

    def json_cases(self, place: Place, *branches: tuple[Node, Node], otherwise: bool) -> Node:
        """Tests of what is at a place, each with the kind it is for. Absent and null are unknown; any other kind
        counts as `otherwise`."""
        something = exp.NEQ(this=self.json_kind(place), expression=exp.Literal.string(self.null_kind))
        return case(*branches, (something, exp.Boolean(this=otherwise)))

    def json_absent(self, place: Place) -> Node:
        """Whether nothing, or null, is at a place."""
        kind = self.json_kind(place)
        return exp.paren(exp.or_(kind.is_(exp.null()), equal(kind, self.null_kind)))


class SQLite(Dialect):
    """SQLite 3.38 and later. Text is matched as bytes, since its text functions stop at a zero byte."""

    name = "sqlite"
    in_turn = "cross"  # else it may read a whole type, and look for each of its rows among a few keys
    kinds: ClassVar = {"text": ("text",), "number": ("integer", "real")}
    null_kind = "null"
    list_kind = "array"
    exact_numbers = True
    takes_lists = True

    def encode(self, scalar: str | None, value: Any) -> Any:
        if isinstance(value, datetime):
            return instant_text(value)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, float) and math.isnan(value):
            return "NaN"  # bound as a number it would become NULL; this text sorts after every number
        if isinstance(value, bytes) and scalar is None:
            return value.hex()
        return value

    def constant(self, scalar: str | None, name: str | None) -> Node:
        return exp.null() if name is None else parameter(name)  # as it is bound; a cast would make 0.0 of a NaN

    def as_json(self, scalar: str, value: Node) -> Node:
        return exp.cast(value, "TEXT") if scalar == "int" else call("ontologia_json", value, scalar)

    def list_items(self, values: Node, scalar: str | None) -> exp.Select:
        value = exp.column("value")
        return exp.select(call("ontologia_float", value) if scalar == "float" else value).from_(
            call("json_each", values)
        )

    def encode_list(self, values: list[Any]) -> Any:
        return json.dumps(values)

    def encode_match(self, text: str) -> Any:
        return text.encode()

    def match(self, op: str, subject: Node, text: Node) -> Node:
        data = exp.cast(subject, "BLOB")
        if op == "contains":
            return exp.GT(this=call("instr", data, text), expression=exp.Literal.number(0))
        length = call("length", text)
        if op == "startswith":
            test = equal(call("substr", data, 1, length), text)
        else:
            test = equal(call("substr", data, exp.Neg(this=length)), text)
        return case((equal(subject, ""), exp.false()), default=test)  # of an empty blob, substr() is NULL

    def rare(self, test: Node) -> Node:
        return call("likelihood", test, 0.001)

    def total(self, subject: Node, scalar: str | None) -> Node:
        total = exp.Sum(this=subject)
        total.meta["whole"] = scalar == "int"  # it overflows on its way, and the engine may have to ask again
        return self._nan_aware(total, subject, scalar)

    def mean(self, subject: Node, scalar: str | None) -> Node:
        if scalar == "int":  # its own adds doubles
            upper = exp.Div(this=subject.copy(), expression=exp.Literal.number(HALF), typed=True)
            return mean_of(total_of_halves(upper, subject), subject)
        return self._nan_aware(exp.Avg(this=subject), subject, scalar)

    def _nan_aware(self, result: Node, subject: Node, scalar: str | None) -> Node:
        if scalar != "float":
            return result
        # A NaN is kept as text, and texts come after all numbers: the greatest value tells, for one comparison a row.
        greatest = exp.Max(this=subject.copy())
        some_nan = equal(call("typeof", greatest), "text")
        # Infinities of both signs make a NaN too, which SQLite gives as NULL.
        undefined = exp.and_(result.is_(exp.null()), exp.not_(greatest.copy().is_(exp.null())))
        return case((exp.paren(exp.or_(some_nan, undefined)), exp.Literal.string("NaN")), default=result)

    def json_kind(self, place: Place) -> Node:
        return call("json_type", place.document, place.path)

    def json_scalar(self, place: Place, kind: str) -> Node:
        found = call("json_extract", place.document, place.path)
        return self.whole_text(found, place) if kind == "text" else found

    def whole_text(self, found: Node, place: Place) -> Node:
        """A text as it is, where `json_extract` would cut it off at a zero byte."""
        zero = call("instr", place.document, exp.Literal.string(ZERO_BYTE))
        return case((zero, call("ontologia_text", place.document, place.path)), default=found)

    def text_length(self, text: Node) -> Node:
        zero = call("instr", exp.cast(text, "BLOB"), exp.HexString(this="00"))
        return case((zero, call("ontologia_length", text)), default=exp.Length(this=text.copy()))

    def json_integer(self, place: Place) -> Node:
        found = call("json_extract", place.document, place.path)
        # The type that is written tells an integer from a truth, the type of the value from one of more than 64 bits.
        written, value = equal(self.json_kind(place), "integer"), equal(call("typeof", found), "integer")
        return case((exp.And(this=written, expression=value), found))

    def json_text(self, place: Place) -> Node:
        text = exp.JSONExtract(this=place.document.copy(), expression=place.path.copy(), only_json_types=True)
        return call("nullif", text, "null")

    def json_truth(self, place: Place) -> Node:
        kind = self.json_kind(place)
        return case((equal(kind, "true"), exp.true()), (equal(kind, "false"), exp.false()))

    def json_items(self, place: Place) -> Node:
        return call("json_array_length", place.document, place.path)

    def some_item(self, place: Place, steps: tuple[str, ...], name: str, test: Callable[[Place], Node]) -> Node:
        items = exp.Table(this=call("json_each", place.document, place.path), alias=exp.TableAlias(this=name))
        inside = exp.DPipe(this=exp.column("fullkey", table=name), expression=exp.Literal.string(join_dotted(steps)))
        found = exp.Exists(this=exp.select("1").from_(items).where(test(Place(place.document, inside))))
        return exp.paren(exp.and_(self.is_list(place), found))


class DuckDB(Dialect):
    """DuckDB 1.x."""

    name = "duckdb"
    kinds: ClassVar = {
        "text": ("VARCHAR",),
        "number": ("BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "DOUBLE"),
        "integer": ("BIGINT", "UBIGINT"),
    }
    null_kind = "NULL"
    list_kind = "ARRAY"
    takes_lists = True

    def encode(self, scalar: str | None, value: Any) -> Any:
        return plain(value) if scalar is None and isinstance(value, date | bytes) else value

    def as_json(self, scalar: str, value: Node) -> Node:
        text: Node = exp.cast(value, "VARCHAR")
        match scalar:
            case "str":
                text = exp.cast(call("to_json", value), "VARCHAR")
            case "float":
                negative = exp.LT(this=value.copy(), expression=exp.Literal.number(0))
                infinite = case((negative, exp.Literal.string('"-Infinity"')), default=exp.Literal.string('"Infinity"'))
                nan = exp.Literal.string('"NaN"')
                text = case((call("isnan", value), nan), (call("isinf", value), infinite), default=text)
            case "bytes":
                text = _in_quotes(call("lower", call("hex", value)))
            case "datetime":
                text = _in_quotes(call("strftime", value, "%Y-%m-%dT%H:%M:%S.%f+00:00"))
            case "date":
                text = _in_quotes(call("strftime", value, "%Y-%m-%d"))
        return case((exp.not_(value.copy().is_(exp.null())), text))

    def list_items(self, values: Node, scalar: str | None) -> exp.Select:
        return exp.select(
            call("unnest", exp.cast(values, {"int": "BIGINT[]", "float": "DOUBLE[]"}.get(scalar or "", "TEXT[]")))
        )

    def encode_match(self, text: str) -> Any:
        return text

    def match(self, op: str, subject: Node, text: Node) -> Node:
        name = {"startswith": "starts_with", "endswith": "ends_with", "contains": "contains"}[op]
        return call(name, subject, text)

    def total(self, subject: Node, scalar: str | None) -> Node:
        return exp.cast(exp.Sum(this=subject), "BIGINT") if scalar == "int" else exp.Sum(this=subject)

    def mean(self, subject: Node, scalar: str | None) -> Node:
        if scalar == "int":  # a sum has 128 bits; its own mean rounds differently on other processors
            return mean_of(exp.cast(exp.Sum(this=subject.copy()), "DOUBLE"), subject)
        return exp.Avg(this=subject)

    def json_kind(self, place: Place) -> Node:
        return call("json_type", place.document, place.path)

    def json_scalar(self, place: Place, kind: str) -> Node:
        text = call("json_extract_string", place.document, place.path)
        return exp.TryCast(this=text, to=exp.DataType.build("DOUBLE"), safe=True) if kind == "number" else text

    def json_text(self, place: Place) -> Node:
        return call("nullif", exp.cast(call("json_extract", place.document, place.path), "VARCHAR"), "null")

    def json_truth(self, place: Place) -> Node:
        text = call("json_extract_string", place.document, place.path)
        return case((equal(self.json_kind(place), "BOOLEAN"), equal(text, "true")))

    def json_integer(self, place: Place) -> Node:
        text = call("json_extract_string", place.document, place.path)
        whole = exp.TryCast(this=text, to=exp.DataType.build("BIGINT"), safe=True)
        return case((self.is_kind(place, "integer"), whole))

    def json_items(self, place: Place) -> Node:
        return call("json_array_length", place.document, place.path)

    def some_item(self, place: Place, steps: tuple[str, ...], name: str, test: Callable[[Place], Node]) -> Node:
        every = exp.DPipe(this=place.path.copy(), expression=exp.Literal.string("[*]"))
        items = call("unnest", exp.cast(call("json_extract", place.document, every), "JSON[]"))
        source = exp.select(exp.alias_(items, "document")).subquery(name)
        document = exp.column("document", table=name)
        return exp.Exists(this=exp.select("1").from_(source).where(test(Place.at(document, steps))))


class Spark(Dialect):
    """Spark 4: JSON text is parsed into a variant once, and places are looked up in that."""

    name = "spark"
    kinds: ClassVar = {"text": ("STRING",), "number": ("BIGINT", "DECIMAL", "DOUBLE", "FLOAT"), "integer": ("BIGINT",)}
    null_kind = "VOID"
    list_kind = "ARRAY"

    def encode(self, scalar: str | None, value: Any) -> Any:
        if scalar is None and isinstance(value, date | bytes):
            return plain(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()  # Spark makes a date of it; its client cannot write years below 1000
        return value + 0.0 if isinstance(value, float) else value  # files have no negative zero

    def encode_match(self, text: str) -> Any:
        return text

    def match(self, op: str, subject: Node, text: Node) -> Node:
        return call(op, subject, text)

    def total(self, subject: Node, scalar: str | None) -> Node:
        if scalar != "int":
            return exp.Sum(this=subject)
        total = exp.Sum(this=exp.cast(subject, "DECIMAL(20, 0)"))  # of 64 bits, it would overflow without a word
        fits = exp.Between(this=total, low=exp.Literal.number(-(2**63)), high=exp.Literal.number(2**63 - 1))
        beyond = call("raise_error", exp.Literal.string(str(SumOverflowError())))
        known = exp.or_(fits, total.copy().is_(exp.null()))
        return case((exp.paren(known), exp.cast(total.copy(), "BIGINT")), default=beyond)

    def mean(self, subject: Node, scalar: str | None) -> Node:
        if scalar == "int":  # its own adds doubles
            upper = exp.IntDiv(this=subject.copy(), expression=exp.Literal.number(HALF))
            return mean_of(total_of_halves(upper, subject), subject)
        return exp.Avg(this=subject)

    def place(self, document: Node, steps: tuple[str, ...]) -> Place:
        return Place(call("parse_json", document), self._path(steps))

    def _path(self, steps: tuple[str, ...]) -> Node:
        return exp.Literal.string("$" + "".join(f'["{step}"]' for step in steps))

    def json_kind(self, place: Place) -> Node:
        described = call("schema_of_variant", call("variant_get", place.document, place.path, "variant"))
        plain = call("substring_index", call("substring_index", described, "(", 1), "<", 1)
        return exp.paren(plain)

    def json_scalar(self, place: Place, kind: str) -> Node:
        return call("try_variant_get", place.document, place.path, "double" if kind == "number" else "string")

    def json_text(self, place: Place) -> Node:
        """A variant forgets that 1.0 was written so: texts come from it, and everything else as it stands."""
        (document,) = place.document.expressions
        if place.path.name == "$":
            return call("nullif", document, "null")
        text = call("to_json", call("variant_get", place.document, place.path, "variant"))
        path = exp.Literal.string(place.path.name.replace('"', "'"))
        return case((self.is_kind(place, "text"), text), default=call("get_json_object", document, path))

    def json_truth(self, place: Place) -> Node:
        value = call("try_variant_get", place.document, place.path, "boolean")
        return case((equal(self.json_kind(place), "BOOLEAN"), value))

    def json_integer(self, place: Place) -> Node:
        whole = call("try_variant_get", place.document, place.path, "bigint")
        return case((self.is_kind(place, "integer"), whole))

    def json_items(self, place: Place) -> Node:
        return call("size", self._items(place))

    def some_item(self, place: Place, steps: tuple[str, ...], name: str, test: Callable[[Place], Node]) -> Node:
        passes = exp.Lambda(
            this=test(Place(exp.column(name), self._path(steps))), expressions=[exp.to_identifier(name)]
        )
        found = exp.Anonymous(this="exists", expressions=[self._items(place), passes])
        return case((self.is_list(place), call("coalesce", found, False)), default=exp.false())

    def _items(self, place: Place) -> Node:
        return call("try_variant_get", place.document, place.path, "array<variant>")


SQLITE = SQLite()
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (SQLITE, DuckDB(), Spark())}
