"""What the columns of an answer are called where a statement gives no name: as DuckDB calls them for the statement as
it was written. The one that runs has views for frames and other words for functions, and would show them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.expressions import Expr

from ontologia.apiary.scan import duck_type
from ontologia.apiary.sql.planning import PlannedQuery, Reference
from ontologia.apiary.sql.statements import DIALECT
from ontologia.files.quoting import quote_name
from ontologia.files.sealing import close_off, open_empty

if TYPE_CHECKING:
    import pyarrow as pa

OWN_DATABASE = "memory"
"""What a DuckDB in memory calls itself, which a hive may be called, too."""
NUMBER = "…"
_FOR_VERSION = ["FOR", "VERSION", "AS", "OF", NUMBER]
_AT_VERSION = ["AT", "(", "VERSION", "=>", NUMBER, ")"]


def name_as_written(found: pa.Table, text: str, plan: PlannedQuery, hive: str | None, box: str | None) -> pa.Table:
    """An answer with the names that its statement gives."""
    if all(_has_name(item) for item in _projections(plan.tree)):
        return found
    names = _names(_without_versions(text), plan, hive, box)
    if len(names) != found.num_columns:
        return found
    times = Counter(name.casefold() for name in names)  # a name that comes twice was told apart already
    chosen = [name if times[name.casefold()] == 1 else old for name, old in zip(names, found.column_names, strict=True)]
    return found.rename_columns(chosen)


def _projections(tree: Expr) -> list[Any]:
    """What the statement gives: of a UNION, its first part says what it is called."""
    node: Any = tree
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    return list(node.expressions)


def _has_name(item: Any) -> bool:
    return isinstance(item, exp.Alias | exp.Column | exp.Star)


def _without_versions(text: str) -> str:
    """A statement without versions of frames, such as FOR VERSION AS OF 3: the tables that DuckDB is asked about have
    none."""
    tokens = sqlglot.tokenize(text, read=DIALECT)
    words = [token.text.upper() for token in tokens]
    for start in reversed(range(len(tokens))):  # from the end, so that what is before stays where it is
        for said in (_FOR_VERSION, _AT_VERSION):
            found = words[start : start + len(said)]
            if [word if word in said else NUMBER for word in found] == said:
                text = text[: tokens[start].start] + text[tokens[start + len(said) - 1].end + 1 :]
    return text


def _names(text: str, plan: PlannedQuery, hive: str | None, box: str | None) -> list[str]:
    """The names that DuckDB gives, asked over empty tables that are called as the frames are."""
    with open_empty() as connection:
        try:
            _create_tables(connection, plan.references)
            if hive is not None:
                connection.execute(f"USE {quote_name(hive)}" + (f".{quote_name(box)}" if box else ""))
            close_off(connection)
            asked = connection.extract_statements(f"DESCRIBE {text}")
            return [str(row[0]) for row in connection.execute(asked[0]).fetchall()] if len(asked) == 1 else []
        except duckdb.Error:
            return []


def _create_tables(connection: duckdb.DuckDBPyConnection, references: Any) -> None:
    frames: dict[Any, Reference] = {reference.name: reference for reference in references}
    for hive in {name.hive for name in frames} - {OWN_DATABASE}:
        connection.execute(f"ATTACH ':memory:' AS {quote_name(hive)}")
    for name, reference in frames.items():
        schema = f"{quote_name(name.hive)}.{quote_name(name.box)}"
        columns = ", ".join(
            f"{quote_name(field.name)} {duck_type(field.arrow)}" for field in reference.snapshot.schema.fields
        )
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE TABLE {schema}.{quote_name(name.frame)} ({columns})")
