"""Which rows a call is about: `{"region": "north"}`, `[("temp", ">", 40)]` or `"temp > 40 AND region = 'north'"`,
as one tree.

A condition names columns of one frame and literals; it reads nothing else, which `files.sealing` makes sure of. The
tree is used twice: to leave out cells (`pruning`) and, rendered for DuckDB, to choose rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from ontologia.apiary.types import FrameSchema
from ontologia.errors import UnknownNameError, ValidationError

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

Filter = Mapping[str, Any] | Sequence[tuple[str, str, Any]] | str
DIALECT = "duckdb"
_OPERATORS = {"=": "EQ", "==": "EQ", "!=": "NEQ", "<>": "NEQ", "<": "LT", "<=": "LTE", ">": "GT", ">=": "GTE"}


def condition(filter: Filter | None, schema: FrameSchema) -> Expr | None:
    """The tree of a filter, with columns as they are declared; None for all rows."""
    if filter is None:
        return None
    if isinstance(filter, str):
        return _of_text(filter, schema)
    triples: list[tuple[str, str, Any]]
    if isinstance(filter, Mapping):
        triples = [(name, "=", value) for name, value in filter.items()]
    else:
        triples = [*filter] if isinstance(filter, list | tuple) else [cast("Any", filter)]
    if not all(isinstance(item, (tuple, list)) and len(item) == 3 for item in triples):
        raise ValidationError(
            f"a filter is {{column: value}}, [(column, operator, value), …] or a condition in SQL, not {filter!r:.100}"
        )
    return conjunction([_comparison(*item, schema) for item in triples])


def conjunction(parts: Sequence[Expr]) -> Expr | None:
    """All of these at once."""
    from sqlglot import exp

    return exp.and_(*parts, wrap=True) if parts else None


def render(tree: Expr) -> str:
    """A tree as SQL for DuckDB, whose parser ends a text at a zero byte."""
    from sqlglot import exp

    def without_zero_bytes(node: Expr) -> Expr:
        if not (isinstance(node, exp.Literal) and node.is_string and "\0" in str(node.this)):
            return node
        parts = [exp.Literal.string(part) for part in str(node.this).split("\0")]
        joined: Expr = parts[0]
        for part in parts[1:]:
            zero = exp.Anonymous(this="chr", expressions=[exp.Literal.number(0)])
            joined = exp.DPipe(this=exp.DPipe(this=joined, expression=zero), expression=part)
        return exp.paren(joined)

    return tree.transform(without_zero_bytes).sql(dialect=DIALECT)


def _comparison(name: str, operator: str, value: Any, schema: FrameSchema) -> Expr:
    from sqlglot import exp

    column = exp.column(schema.column(name).name, quoted=True)
    word = str(operator).strip().lower()
    value = python_value(value)
    if isinstance(value, (list, tuple, set, frozenset)) and word in ("=", "==", "in", "not in"):
        found = exp.In(
            this=column, expressions=[literal(item) for item in map(python_value, value) if item is not None]
        )
        tree: Expr = found if found.expressions else exp.false()
        if any(python_value(item) is None for item in value):
            tree = exp.or_(tree, exp.Is(this=column.copy(), expression=exp.null()))
        return exp.not_(tree) if word == "not in" else tree
    if value is None and word in ("=", "==", "is", "!=", "<>", "is not"):
        null = exp.Is(this=column, expression=exp.null())
        return null if word in ("=", "==", "is") else exp.not_(null)
    if word not in _OPERATORS or value is None:
        raise ValidationError(
            f"({name!r}, {operator!r}, {value!r:.40}) is not a condition: operators are =, !=, <, <=, >, >=, in, not in"
        )
    kind = getattr(exp, _OPERATORS[word])
    return kind(this=column, expression=literal(value))  # type: ignore[no-any-return]


def python_value(value: Any) -> Any:
    """What numpy, pandas, polars and Arrow hand out, as a Python value or a list of such."""
    library = type(value).__module__.partition(".")[0]
    if library not in ("numpy", "pandas", "polars", "pyarrow"):
        return value
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if type(value).__name__ == "datetime64":
        value = value.astype("datetime64[us]")  # of finer ones numpy gives numbers
    for method in ("as_py", "to_pylist", "tolist", "to_list"):
        if hasattr(value, method):
            return getattr(value, method)()
    return value


def literal(value: Any) -> Expr:
    """A Python value in SQL."""
    from sqlglot import exp

    value = python_value(value)
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.true() if value else exp.false()
    if isinstance(value, float):
        return exp.cast(exp.Literal.string(float.__repr__(value)), "DOUBLE")
    if isinstance(value, int):
        return exp.Literal.number(str(value))
    if isinstance(value, Decimal) and value.is_finite():
        whole, _, fraction = format(value.copy_abs(), "f").partition(".")
        text, size = format(value, "f"), f"DECIMAL({len(whole) + len(fraction)}, {len(fraction)})"
        return exp.cast(exp.Literal.string(text), size)
    if isinstance(value, datetime):
        kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
        return exp.cast(exp.Literal.string(value.isoformat(sep=" ")), kind)
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, (bytes, bytearray)):
        return exp.Unhex(this=exp.Literal.string(bytes(value).hex()))
    raise ValidationError(f"{value!r:.60} is a {type(value).__name__}, which no column is compared with")


def _of_text(text: str, schema: FrameSchema) -> Expr:
    import sqlglot
    from sqlglot import exp

    from ontologia.files.sealing import check_expression

    try:
        found = sqlglot.parse(text, dialect=DIALECT)
    except sqlglot.errors.SqlglotError as problem:
        raise ValidationError(f"{text!r} is not a condition: {_first_line(problem)}") from problem
    tree = found[0] if len(found) == 1 else None
    forbidden = (exp.Query, exp.Table, exp.Command, exp.DDL, exp.DML, exp.Window, exp.AggFunc, exp.Placeholder)
    if tree is None or not isinstance(tree, exp.Condition | exp.Paren) or tree.find(*forbidden) is not None:
        raise ValidationError(
            f"{text!r} is not a condition on the columns of a frame, as in \"temp > 40 AND region = 'n'\""
        )
    declared = declared_columns(tree, schema)
    check_expression(render(declared))
    return declared


def declared_columns(tree: Expr, schema: FrameSchema) -> Expr:
    """The tree with every column as it is declared, whatever its case was in the text."""
    from sqlglot import exp

    folded = {name.casefold(): name for name in schema.names}
    for column in list(tree.find_all(exp.Column)):
        if column.table or column.name.casefold() not in folded:
            raise UnknownNameError(f"there is no column {column.sql()!r}; there are {', '.join(schema.names)}")
        named = exp.column(folded[column.name.casefold()], quoted=True)
        if column is tree:
            return named
        column.replace(named)
    return tree


def _first_line(problem: Exception) -> str:
    first = str(problem).partition("\n")[0].split(". Line ")[0]
    return "something is missing at its end" if first.startswith("Required keyword") else first
