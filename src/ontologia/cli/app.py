"""The commands, put together. Nothing heavy is imported here: `onto --help` must be quick."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from ontologia.cli import (
    check,
    commits,
    copy,
    erase,
    events,
    forget,
    frames,
    graphs,
    maintenance,
    migrate,
    pipeline,
    query,
    remove,
    schema,
    storage,
    transfer,
    verify,
)
from ontologia.cli.run import remember, with_globals

HELP = """Typed data with history: the operator's console.

Reads never write. Every write can be previewed, and says on stderr where it goes. Data goes to stdout.

Exit codes: 0 ok, 1 error, 2 usage, 3 schema mismatch or unhealthy index, 4 a lost race or failed execution,
5 storage or transaction error, 6 import precondition or conflict, 7 a drop, discard, erasure or forget refused.
"""


def _version(wanted: bool) -> None:
    if wanted:
        from ontologia import __version__

        print(f"onto {__version__}")
        raise typer.Exit


@cache
def build(*, in_panels: bool) -> Callable[..., Any]:
    """The application, put together once. Help is drawn in panels on a terminal, and is plain text in a pipe."""
    app = typer.Typer(
        name="onto",
        no_args_is_help=True,
        invoke_without_command=True,
        rich_markup_mode="rich" if in_panels else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )

    def root(
        ctx: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
        ] = False,
        **values: Any,
    ) -> None:
        remember(ctx, values)
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    app.callback(help=HELP, epilog="Example:  onto info --db onto.db")(with_globals(root))
    about_types = (storage, verify, schema, migrate, query, remove, erase, forget, commits)
    for module in (*about_types, events, transfer, copy, maintenance, check, pipeline, graphs, frames):
        module.register(app)
    return typer.main.get_command(app)
