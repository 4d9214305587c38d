"""Every option that more than one command takes, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.exits import UsageError
from ontologia.model import to_utc

if TYPE_CHECKING:
    from ontologia.runtime.store import Store

GLOBAL = "Global options"
LARGEST = 2**63 - 1


def _global(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=GLOBAL, show_default=False, **more)


def number(*names: str, help: str, least: int = 0, **more: Any) -> Any:
    """An option that takes a whole number. One too large for any engine means the largest there is."""

    def bounded(value: int | None) -> int | None:
        return None if value is None else min(value, LARGEST)

    return typer.Option(*names, min=least, metavar="N", help=help, callback=bounded, **more)


def commit_or_time(text: str) -> int | datetime:
    """A commit, or a time such as 2026-01-31 or 2026-01-31T12:00+01:00, in UTC unless it says otherwise."""
    try:
        return min(int(text), LARGEST) if text.isdecimal() else to_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"takes a commit or a time such as 2026-01-31T12:00, not {text!r}") from None


def commit_of(store: Store, as_of: int | datetime | None) -> int | None:
    """The commit that `--as-of` means."""
    return store.commit_at(as_of) if isinstance(as_of, datetime) else as_of


# Accepted before and after the command: `onto --db a.db info` and `onto info --db a.db`.
GLOBALS: dict[str, tuple[Any, Any]] = {
    "db": (
        Annotated[str | None, _global("--db", metavar="PATH", help="SQLite file, onto.db by default. ONTOLOGIA_DB")],
        None,
    ),
    "storage_uri": (
        Annotated[
            str | None,
            _global("--storage-uri", metavar="URI", help="Target of any engine: s3://… ONTOLOGIA_STORAGE_URI"),
        ],
        None,
    ),
    "config": (
        Annotated[str | None, _global("--config", "-c", metavar="FILE", help="Settings in TOML. ONTOLOGIA_CONFIG")],
        None,
    ),
    "json": (Annotated[bool, _global("--json", help="Print the results as JSON on stdout.")], False),
    "quiet": (Annotated[bool, _global("--quiet", "-q", help="No hints and no progress on stderr.")], False),
    "debug": (Annotated[bool, _global("--debug", help="Show the traceback of a failure.")], False),
}

# Frames lie in folders and buckets of their own, and have a name for those.
FRAME_GLOBALS: dict[str, tuple[Any, Any]] = {
    "storage": (
        Annotated[
            str | None,
            _global("--storage", "--storage-uri", metavar="URI", help="The storage root. APIARY_STORAGE_URL"),
        ],
        None,
    ),
    **{name: option for name, option in GLOBALS.items() if name not in ("db", "storage_uri")},
}


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """The global options as typed, wherever they stood."""

    db: str | None = None
    storage_uri: str | None = None
    storage: str | None = None
    config: str | None = None
    json: bool = False
    quiet: bool = False
    debug: bool = False


OnBranch = Annotated[
    str | None, typer.Option("--branch", metavar="NAME", help="The branch of a graph; main by default.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--models", metavar="MODULE", help="Module or file with the classes: myapp.models or ./models.py"),
]
Apply = Annotated[bool, typer.Option("--apply", help="Do it. Without this flag, only a preview is shown.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")]
Token = Annotated[str | None, typer.Option("--token", metavar="TOKEN", help="The token that the preview printed.")]
CommitMeta = Annotated[
    list[str] | None, typer.Option("--meta", metavar="K=V", help="A note on the commit; may be given many times.")
]
WorkEngine = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option("--engine", help="Where the work runs; auto uses Spark for large work only."),
]
QueryEngine = Annotated[Literal["duckdb", "spark"] | None, typer.Option("--engine", help="What answers the query.")]
TypeFilter = Annotated[
    list[str] | None, typer.Option("--type", metavar="NAME", help="Only this type; may be given many times.")
]
OneType = Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only this type.")]
KindOption = Annotated[
    Literal["entity", "relation"] | None, typer.Option("--kind", help="Whether it is an entity or a relation.")
]
AsOf = Annotated[
    Any,  # typer takes no union here; it is what the parser gives
    typer.Option(
        "--as-of", parser=commit_or_time, metavar="N|TIME", help="The state right after commit N, or at a time."
    ),
]
AcrossVersions = Annotated[
    bool,
    typer.Option("--across-versions", help="Also read rows of earlier schema versions, as rows of the current one."),
]
UpgraderModules = Annotated[
    list[str] | None, typer.Option("--upgraders", metavar="MODULE", help="Module or file with @upgrader functions.")
]
HistorySince = Annotated[int | None, number("--history-since", help="Every version written after commit N.")]


def check_token(apply: bool, token: str | None) -> None:
    """A preview prints a token, and what it showed is done with that token alone."""
    if apply and token is None:
        raise UsageError("--apply needs --token: run it without --apply to see what would be done and to get the token")
    if token is not None and not apply:
        raise UsageError("--token is for --apply")
