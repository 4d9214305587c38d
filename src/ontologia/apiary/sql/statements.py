"""What kind of statement a text is: a command, a query, or something that is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.expressions import Expr

from ontologia.errors import UnsupportedStatementError, ValidationError

DIALECT = "duckdb"
_SKIPPED = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_NAME = r'(?:"(?P<{0}_quoted>[^"]+)"|(?P<{0}>[\w.-]+))'
_COMMANDS = {
    "use_hive": re.compile(r"USE\s+HIVE\s+" + _NAME.format("name"), re.IGNORECASE),
    "use_box": re.compile(r"USE\s+BOX\s+" + _NAME.format("name"), re.IGNORECASE),
    "show_hives": re.compile(r"SHOW\s+HIVES", re.IGNORECASE),
    "show_boxes": re.compile(r"SHOW\s+BOXES(?:\s+IN\s+" + _NAME.format("name") + ")?", re.IGNORECASE),
    "show_frames": re.compile(r"SHOW\s+FRAMES(?:\s+IN\s+" + _NAME.format("name") + ")?", re.IGNORECASE),
    "describe": re.compile(r"DESCRIBE\s+" + _NAME.format("name"), re.IGNORECASE),
}
_WORD = re.compile(r"[^\W\d]\w*")
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING)
_EXPLAIN = re.compile(r"EXPLAIN\s+(ANALYZE\s+)?(?=\S)", re.IGNORECASE)
_BEGINNINGS = ("SELECT", "WITH", "FROM", "VALUES", "USE", "SHOW", "DESCRIBE", "EXPLAIN")
_READS = "SQL over frames reads: SELECT, USE, SHOW, DESCRIBE, EXPLAIN"
_INSTEAD = {
    "DELETE": "use frame.delete(filter) in the Python SDK, or frame.overwrite() to replace data (overwrite_frame)",
    "UPDATE": "use frame.update(filter, {…}) in the Python SDK, or frame.overwrite() to replace data (overwrite_frame)",
    "MERGE": "use frame.merge(table, on=[…]) in the Python SDK",
    "INSERT": "use frame.write(table) in the Python SDK (write_to_frame)",
    "CREATE": "use create_hive, create_box or create_frame in the Python SDK",
    "DROP": "the registry keeps what was created; empty a frame with frame.overwrite() in the Python SDK",
    "TRUNCATE": "empty a frame with frame.overwrite() in the Python SDK",
    "ALTER": "the registry keeps a frame as it was created; make another with create_frame and write to it",
    "COPY": "use frame.write(table) to load, and frame.read() to take data out",
}


@dataclass(frozen=True)
class Command:
    """USE, SHOW or DESCRIBE."""

    kind: str
    name: str | None


@dataclass(frozen=True)
class ReadStatement:
    """Something that reads. `explain` is None, "plan" or "analyze"."""

    text: str
    tree: Expr
    explain: str | None = None


def parse_statement(text: str) -> Command | ReadStatement:
    """Understand one statement, or say why it is not run."""
    if not isinstance(text, str):
        raise ValidationError(f"a statement is a text, not {text!r:.60}")
    plain = _SKIPPED.sub("", text, count=1).strip()
    if not plain.strip("; \n\t"):
        raise ValidationError("there is no statement")
    _refuse_writes(plain)
    for kind, pattern in _COMMANDS.items():
        match = pattern.fullmatch(plain.rstrip("; \n\t"))
        if match:
            found = match.groupdict()
            return Command(kind, found.get("name_quoted") or found.get("name"))
    explain = _EXPLAIN.match(plain)
    if explain is None:
        return ReadStatement(text, _tree(plain))
    inner = _SKIPPED.sub("", plain[explain.end() :], count=1)
    _refuse_writes(inner)
    return ReadStatement(inner, _tree(inner), "analyze" if explain[1] else "plan")


def _refuse_writes(text: str) -> None:
    """By the first word. What changes something is refused with the call that does it."""
    word = re.match(r"\w*", text)
    first = word[0].upper() if word else ""
    if first in _INSTEAD:
        raise UnsupportedStatementError(f"{first} is not supported in Apiary v1 SQL: {_INSTEAD[first]}")
    if first and first not in _BEGINNINGS:
        raise UnsupportedStatementError(f"{first} is not supported: {_READS}")


def _quote_words_after_dots(text: str) -> str:
    """A statement in which the last parts of names such as `h.b.values` are quoted. DuckDB takes any word there."""
    tokens = sqlglot.tokenize(text, read=DIALECT)
    for place in reversed(range(1, len(tokens))):
        token, follows = tokens[place], tokens[place + 1 : place + 2]
        is_call = bool(follows) and follows[0].token_type is TokenType.L_PAREN
        is_word = _WORD.fullmatch(token.text) and token.token_type not in _NAMES
        if is_word and not is_call and tokens[place - 1].token_type is TokenType.DOT:
            text = f'{text[: token.start]}"{token.text}"{text[token.end + 1 :]}'
    return text


def _tree(text: str) -> Expr:
    try:
        plain = _quote_words_after_dots(text)
        found = [tree for tree in sqlglot.parse(plain, dialect=DIALECT) if tree is not None]
    except sqlglot.errors.SqlglotError as problem:
        raise ValidationError(f"this is not SQL: {str(problem).partition(chr(10))[0]}") from problem
    if len(found) != 1:
        raise UnsupportedStatementError(f"one statement at a time, not {len(found)}")
    tree = found[0]
    forbidden = tree.find(exp.DML, exp.DDL, exp.Command, exp.Into, exp.Set, exp.Pragma, exp.Attach, exp.Copy)
    if isinstance(forbidden, exp.Query):  # a query is where data-changing statements may stand, but is none itself
        forbidden = next((node for node in tree.find_all(exp.Insert, exp.Update, exp.Delete, exp.Merge)), None)
        forbidden = forbidden or tree.find(exp.Create, exp.Into, exp.Command)
    if not isinstance(tree, exp.Query | exp.Subquery) or forbidden is not None:
        word = (forbidden or tree).key.upper()
        raise UnsupportedStatementError(f"{word} is not supported: {_INSTEAD.get(word, _READS)}")
    return tree
