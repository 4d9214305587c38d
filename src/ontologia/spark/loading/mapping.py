"""From a source's columns to a type's rows: expressions, casts and checks, all as Spark columns.

A row that does not fit is not an error here. It gets a reason, and the pipeline decides what to do with it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType

from ontologia.errors import ValidationError
from ontologia.model import Column, Declaration, encode_json
from ontologia.model.typespec import accepts_none, has_none_inside
from ontologia.model.values import to_utc
from ontologia.runtime.intake.checks import Check, checks_of, instance_column, refuse_validators
from ontologia.runtime.intake.conversions import describe_refusal, rule_of
from ontologia.runtime.intake.loads import NAME, end_key, fills
from ontologia.runtime.intake.rows import BLANKS, ORDER, must_be_filled
from ontologia.spark.loading.conversions import SourceValue, convert, kind_of, read_number, spell
from ontologia.spark.loading.suspects import suspects
from ontologia.spark.types import quote_name, spark_type

REASON, SOURCE = "__reason", "__source"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SAID_AS_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'+00:00'",
}
"""Nested values in the words of `encode_json`."""


class Problem(NamedTuple):
    """When a row does not fit, and what is said of it: apart, because of most rows there is nothing to say."""

    holds: SparkColumn
    said: SparkColumn


def map_rows(
    source: DataFrame,
    declaration: Declaration,
    expressions: Mapping[str, Any],
    *,
    order_by: Any = None,
) -> DataFrame:
    """Rows as storage has them (identity, fields), with the reason against each, the source row, and its order."""
    chosen = {
        name: sql.col(quote_name(name)) if expression is None else _expression(expression)
        for name, expression in fills(source.columns, declaration, expressions).items()
    }
    tried = {name: expression for name, expression in expressions.items() if not _is_name(expression)}
    try:
        order = sql.lit(None).cast("string") if order_by is None else _order(source, order_by)
        picked = source.select(  # by place: Spark takes names that differ in case alone for one
            *(
                (_attempt(source, column) if name in tried else column).alias(f"__{place}")
                for place, (name, column) in enumerate(chosen.items())
            ),
            order.alias(ORDER),
            sql.to_json(sql.struct("*"), SAID_AS_JSON).alias(SOURCE),
        )
        given, failed = _read_chosen(chosen, tried, picked)
        return picked.select(*_row(declaration, given, failed), sql.col(ORDER))
    except AnalysisException as refusal:
        raise ValidationError(f"{declaration.ref} cannot be mapped from this source: {_line(refusal)}") from refusal


def map_identity(source: DataFrame, declaration: Declaration, expressions: Mapping[str, Any]) -> DataFrame:
    """The identities that a source names, with the reason against each."""
    ends = ["left_key", "right_key", *([declaration.instance_key] if declaration.instance_key else [])]
    names = [declaration.primary_key or ""] if declaration.ref.kind == "entity" else ends
    missing = [name for name in names if name not in expressions and name not in source.columns]
    if missing:
        raise ValidationError(f"nothing says {', '.join(missing)} of the {declaration.ref} to remove: map it")
    try:
        chosen = [
            _expression(expressions[name]) if name in expressions else sql.col(quote_name(name)) for name in names
        ]
        picked = source.select(*(column.alias(f"__{place}") for place, column in enumerate(chosen)))
        given = {name: SourceValue(sql.col(f.name), f.dataType) for name, f in zip(names, picked.schema, strict=True)}
        values: dict[str, SparkColumn] = {}
        problems: list[Problem] = []
        if declaration.ref.kind == "entity":
            key = declaration.schema.by_name[names[0]]
            values[key.name], problems = _convert(key, given[key.name])
            problems.append(_missing(key.name, given[key.name].value))
        refuse_validators(declaration)
        keys, unfit = _identity(declaration, given, values, checks_of(declaration))
        said = [sql.when(problem.holds, problem.said) for problem in (*unfit, *problems)]
        wrong = reduce(operator.or_, (problem.holds for problem in (*unfit, *problems)), sql.lit(False))
        reason = sql.when(wrong, sql.concat_ws("; ", *said)).alias(REASON)
        return picked.select(*(text.alias(name) for name, text in keys.items()), reason)
    except AnalysisException as refusal:
        raise ValidationError(f"{declaration.ref} cannot be mapped from this source: {_line(refusal)}") from refusal


VALUE = "value"


def _attempt(source: DataFrame, column: SparkColumn) -> SparkColumn:
    """What an expression gives, in a struct; nothing at all where it fails, as a cast of a text that is no number does.

    Spark has no function for that, only a node of its plans. A Connect session cannot name it: there, the load fails.
    """
    wrapped = sql.struct(column.alias(VALUE))
    jvm: Any = getattr(source.sparkSession, "_jvm", None)
    if jvm is None:
        return wrapped
    expressions: Any = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(wrapped._jc))
    made: Any = type(wrapped)
    found: SparkColumn = made(expressions.column(tried))
    return found


def _read_chosen(
    names: Iterable[str], tried: Mapping[str, Any], picked: DataFrame
) -> tuple[dict[str, SourceValue], list[Problem]]:
    """The values that were picked by place, and where an expression has failed."""
    given: dict[str, SourceValue] = {}
    problems = []
    for name, picked_field in zip(names, picked.schema, strict=False):
        column, kind = sql.col(picked_field.name), picked_field.dataType
        if name not in tried:
            given[name] = SourceValue(column, kind)
            continue
        assert isinstance(kind, types.StructType)
        given[name] = SourceValue(column[VALUE], kind[VALUE].dataType)
        said = f"{name}: {_show(tried[name])} fails for this row"
        problems.append(Problem(column.isNull(), sql.lit(said)))
    return given, problems


def _is_name(expression: Any) -> bool:
    """Whether an expression is the name of a column, which cannot fail."""
    return isinstance(expression, str) and NAME.fullmatch(expression.strip()) is not None


def _show(expression: Any) -> str:
    return expression if isinstance(expression, str) else "its expression"


def _row(declaration: Declaration, given: Mapping[str, SourceValue], failed: list[Problem]) -> list[SparkColumn]:
    """The columns of a row, its reason and its source.

    The source row is text as long as the row itself. It goes along only where a row may still be refused: one with a
    reason, and one with a value that executors have to look at.
    """
    refuse_validators(declaration)
    checks = checks_of(declaration)
    values: dict[str, SparkColumn] = {}
    problems = list(failed)
    suspected = []
    for column in declaration.schema.columns:
        check = checks.get(column.physical)
        if column.name not in given:  # the declared default
            values[column.name] = _default(declaration, column)
            if check is not None and check.refuses(column, _default_value(declaration, column)):
                suspected.append(sql.lit(True))
            continue
        found = given[column.name]
        value, lost = _convert(column, found)
        problems += lost
        if not _takes_none(column) and must_be_filled(declaration.options[column.name]):
            problems.append(_missing(column.name, found.value))
        elif not _takes_none(column):  # an empty cell says nothing, so the default holds
            value = sql.when(found.value.isNull(), _default(declaration, column)).otherwise(value)
        values[column.name] = value
        if check is not None:
            suspected.append(suspects(check, column, value))
    keys, unfit = _identity(declaration, given, values, checks)
    wrong = reduce(operator.or_, (problem.holds for problem in (*unfit, *problems)), sql.lit(False))
    said = [sql.when(problem.holds, problem.said) for problem in (*unfit, *problems)]
    return [
        *(text.alias(name) for name, text in keys.items()),
        *(values[column.name].alias(column.physical) for column in declaration.schema.columns),
        sql.when(wrong, sql.concat_ws("; ", *said)).alias(REASON),
        sql.when(reduce(operator.or_, suspected, wrong), sql.col(SOURCE)).alias(SOURCE),
    ]


def _order(source: DataFrame, order_by: Any) -> SparkColumn:
    """What decides which row is the last. Text that reads as a number counts as one: in a CSV file all is text."""
    if isinstance(order_by, (list, tuple)):
        return sql.struct(*(_order(source, one).alias(f"_{place}") for place, one in enumerate(order_by)))
    order = _expression(order_by)
    if not isinstance(source.select(order).schema[0].dataType, types.StringType):
        return order
    return sql.struct(read_number(order).alias("number"), order.alias("text"))


def _expression(text: Any) -> SparkColumn:
    return sql.expr(text) if isinstance(text, str) else text


def _line(refusal: Exception) -> str:
    """The line of Spark's refusal that says what is wrong; the rest shows its plan."""
    return str(refusal).strip().splitlines()[0]


def _identity(
    declaration: Declaration,
    given: Mapping[str, SourceValue],
    values: Mapping[str, SparkColumn],
    checks: Mapping[str, Check],
) -> tuple[dict[str, SparkColumn], list[Problem]]:
    """The identity columns as text, and what may be wrong with them beyond what is wrong with a field."""
    if declaration.ref.kind == "entity":
        key = declaration.schema.by_name[declaration.primary_key or ""]
        if key.name in given:
            _check_key(key, given[key.name])
        value, problems = values[key.name], []
        check = checks.get(key.physical)
        if check is not None and check.limits is None:
            value, refused = _settle_key(key, check, value)
            problems.append(refused)
        return {"entity_key": _key_text(key.name, SourceValue(value, spark_type(key.spark_type)))}, problems
    name = declaration.instance_key
    ends = {"left_key": "left_key", "right_key": "right_key"} | ({} if name is None else {"instance_key": name})
    keys, problems = {}, []
    for end, source in ends.items():
        key = end_key(declaration, end, source)
        _check_key(key, given[source])
        value, lost = _convert(key, given[source])
        keys[end] = _key_text(source, SourceValue(value, spark_type(key.spark_type)))
        problems += [_missing(source, given[source].value), *lost]
    if name is None:
        keys["instance_key"] = sql.lit("")
    elif "instance_key" in checks:
        keys["instance_key"], refused = _settle_key(instance_column(name), checks["instance_key"], keys["instance_key"])
        problems.append(refused)
    else:
        blank = sql.btrim(keys["instance_key"], sql.lit(BLANKS)) == ""
        problems.append(Problem(blank, sql.lit(f"{name}: a key must not be blank")))
    return keys, problems


def _settle_key(key: Column, check: Check, value: SparkColumn) -> tuple[SparkColumn, Problem]:
    """A key as its validator leaves it, and the reason where it refuses: rows must meet by the key they end up with."""

    def settle(values: pa.Array) -> pa.Array:
        found, problems = check.of(key, pa.chunked_array([values.cast(key.arrow_type)]))
        reasons = pa.array([problems.get(row) for row in range(len(values))], pa.string())
        return pa.StructArray.from_arrays([found.combine_chunks(), reasons], ["key", "reason"])

    readable = sql.try_validate_utf8(value) if key.scalar == "str" else value
    settle.__annotations__ = {"values": pa.Array, "return": pa.Array}  # by which Spark knows what to hand it
    call: Any = arrow_udf
    found = call(settle, f"key {key.spark_type}, reason string")(readable)
    return found["key"], Problem(found["reason"].isNotNull(), found["reason"])


def _key_text(name: str, given: SourceValue) -> SparkColumn:
    """A key as the text it is stored under, as `key_text` has it; none where it is not text that can be read."""
    found = kind_of(given.kind)
    if found not in ("text", "int", "date", "instant", "local"):
        raise _no_key(name, given)
    text = spell(found, given.value)
    return sql.try_validate_utf8(text) if found == "text" else text


def _check_key(key: Column, given: SourceValue) -> None:
    """Refuse a column of which no value can be a key, before any row is read."""
    kind = kind_of(given.kind)
    if kind is None or rule_of(key.scalar or "str", kind) is None:
        raise _no_key(key.name, given)


def _no_key(name: str, given: SourceValue) -> ValidationError:
    kinds = "text, a whole number, a date or a time"
    return ValidationError(f"{name} is a key: {kinds}, and the source has {given.kind.simpleString()}: map it")


def _convert(column: Column, given: SourceValue) -> tuple[SparkColumn, list[Problem]]:
    """A source value as a field's value, and how it may be none."""
    if column.scalar is None:
        return _json(column, given)
    if kind_of(given.kind) is None:
        raise ValidationError(
            f"{column.name} is {column.describe()}, and the source has {given.kind.simpleString()}: map it"
        )
    value, lost = convert(column, given)
    return value, [] if lost is None else [Problem(lost, _lost(column.name, given, column.scalar))]


def _lost(name: str, given: SourceValue, scalar: str) -> SparkColumn:
    """What is said of a value that a field cannot take."""
    kind = kind_of(given.kind) or ""
    if rule_of(scalar, kind) is None:
        return sql.lit(describe_refusal(name, kind, scalar))
    return _describe(name, given, "UTF-8 text" if scalar == "str" and kind in ("text", "bytes") else scalar)


def _json(column: Column, given: SourceValue) -> tuple[SparkColumn, list[Problem]]:
    """A structured value as JSON text, which executors check and bring to its canonical form."""
    source, kind = given
    if isinstance(kind, types.StringType):
        wrong = ~sql.is_valid_utf8(source) | sql.try_parse_json(source).isNull()
        return source, [Problem(source.isNotNull() & wrong, _describe(column.name, given, "JSON"))]
    value = _sayable(source, kind)
    if isinstance(kind, (types.StructType, types.ArrayType, types.MapType)):
        garbled = Problem(_is_garbled(source, kind), sql.lit(f"{column.name}: has text that is not valid UTF-8"))
        whole = {**SAID_AS_JSON, "ignoreNullFields": str(not has_none_inside(column.spec)).lower()}
        return sql.to_json(value, whole), [garbled] if '"string"' in kind.json() else []
    alone = sql.to_json(sql.array(value), SAID_AS_JSON)  # Spark writes no scalar as JSON
    return sql.when(source.isNotNull(), sql.substr(alone, sql.lit(2), sql.length(alone) - 2)), []


def _sayable(value: SparkColumn, kind: DataType) -> SparkColumn:
    """A value that `to_json` says in our words: bytes in hex, and the keys of a map as keys are stored."""
    if _is_sayable(kind):
        return value
    match kind:
        case types.BinaryType():
            return sql.lower(sql.hex(value))
        case types.ArrayType():
            return sql.transform(value, lambda item: _sayable(item, kind.elementType))
        case types.MapType():
            keyed = sql.transform_keys(
                value, lambda key, _: _key_text("what leads to a value", SourceValue(key, kind.keyType))
            )
            return sql.transform_values(keyed, lambda _, item: _sayable(item, kind.valueType))
        case types.StructType():
            members = (_sayable(value[field.name], field.dataType).alias(field.name) for field in kind)
            return sql.when(value.isNotNull(), sql.struct(*members))
    return value


def _is_sayable(kind: DataType) -> bool:
    match kind:
        case types.ArrayType():
            return _is_sayable(kind.elementType)
        case types.MapType():
            plain = (types.StringType, types.IntegralType, types.BooleanType)
            return isinstance(kind.keyType, plain) and _is_sayable(kind.valueType)
        case types.StructType():
            return all(_is_sayable(field.dataType) for field in kind)
    return not isinstance(kind, types.BinaryType)


def _is_garbled(value: SparkColumn, kind: DataType) -> SparkColumn:
    """Whether there is text in a value that is not UTF-8."""
    match kind:
        case types.StringType():
            return ~sql.is_valid_utf8(value)
        case types.ArrayType():
            return sql.exists(value, lambda item: _is_garbled(item, kind.elementType))
        case types.MapType():
            keys, values = types.ArrayType(kind.keyType), types.ArrayType(kind.valueType)
            return _is_garbled(sql.map_keys(value), keys) | _is_garbled(sql.map_values(value), values)
        case types.StructType():
            members = (_is_garbled(value[field.name], field.dataType) for field in kind)
            return reduce(operator.or_, members, sql.lit(False))
    return sql.lit(False)


def _takes_none(column: Column) -> bool:
    return accepts_none(column.spec) if column.scalar is None else column.nullable


def _missing(name: str, given: SparkColumn) -> Problem:
    return Problem(given.isNull(), sql.lit(f"{name}: must have a value"))


def _describe(name: str, given: SourceValue, expected: str) -> SparkColumn:
    shown = sql.make_valid_utf8(spell(kind_of(given.kind) or "", given.value))
    return sql.concat(sql.lit(f"{name}: cannot be read as {expected}: "), shown)


def _default(declaration: Declaration, column: Column) -> SparkColumn:
    """A default as a literal. Times are told in numbers: as themselves they would follow the zone of the driver."""
    value = _default_value(declaration, column)
    if isinstance(value, datetime):
        since = (to_utc(value) - EPOCH) // timedelta(microseconds=1)
        return sql.timestamp_micros(sql.lit(since).cast("bigint"))
    if isinstance(value, date):
        return sql.date_from_unix_date(sql.lit((value - EPOCH.date()).days))
    return sql.lit(value).cast(spark_type(column.spark_type))


def _default_value(declaration: Declaration, column: Column) -> Any:
    value = declaration.options[column.name].make_default()
    return value if column.scalar is not None or value is None else encode_json(value)
