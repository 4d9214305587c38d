"""What every command gets: its settings, its output, and the store it is about."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from ontologia.cli.exits import UsageError, in_options
from ontologia.cli.options import GLOBALS, GlobalOptions
from ontologia.cli.output import Output, Progress, count_noun, escape
from ontologia.cli.target import Settings, resolve
from ontologia.errors import OntologiaError, without_passwords
from ontologia.extras import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ontologia.query.plan import Across
    from ontologia.runtime.store import Store

GIVEN = "ontologia.given"


class Run:
    """One command, from its options to its exit."""

    def __init__(self, given: GlobalOptions) -> None:
        self.given = given
        self.output = Output(as_json=given.json, quiet=given.quiet)
        self.until_done = ExitStack()

    @cached_property
    def settings(self) -> Settings:
        return resolve(self.given)

    def model_names(self, given: Sequence[str] | None, *, needed: bool = False) -> list[str]:
        """The modules named by `--models`, or else by the config file."""
        names = list(given or self.settings.models)
        if needed and not names:
            raise UsageError("--models is needed: a module (myapp.models) or a file (./models.py)")
        return names

    @contextmanager
    def store(
        self,
        models: Sequence[str] = (),
        *,
        create: bool = False,
        by_pages: bool = False,
        branch: str | None = None,
    ) -> Iterator[Store]:
        """Open the store, a graph on a branch of it, with the classes of these modules declared."""
        from ontologia.cli.models import load_models
        from ontologia.runtime.store import Store

        settings = self.settings.with_little_memory() if by_pages else self.settings
        declarations = load_models(models)
        with Store(settings.open(create=create, branch=branch), declarations) as store:
            yield store

    def across(self, store: Store, wanted: bool, upgraders: Sequence[str] | None) -> Across | None:
        """What `--across-versions` asks for: the declared classes, and the upgraders of `--upgraders` or the config."""
        from ontologia.cli.models import load_steps
        from ontologia.query.plan import Across

        if not wanted:
            if upgraders:
                raise UsageError("--upgraders is for --across-versions")
            return None
        return Across(store.declarations, load_steps(upgraders or self.settings.upgraders))

    def on_spark(self, engine: str, rows: int) -> bool:
        """Whether work of this size is Spark's, which must be there then."""
        chosen = engine == "spark" or (engine == "auto" and rows > self.settings.config.spark_above_rows)
        if chosen:
            by_size = f"work of {rows:,} rows, unless with --engine local,"
            need("pyspark", "--engine spark" if engine == "spark" else by_size)
        return chosen

    def spark(
        self, *, master: str | None = None, config: Mapping[str, str] | None = None, brief: bool = False
    ) -> SparkSession:
        """A Spark session, and the address where its work can be watched, unless that is `brief`.

        From here on, Ctrl-C ends the command, wherever it is: PySpark's own handler can be lost between two jobs.
        """
        from ontologia.spark.session import spark_session

        session = spark_session("onto", master=master, config=config, brief=brief)

        from ontologia.spark.failures import stoppable  # it imports PySpark, which was asked for just now

        self.until_done.enter_context(stoppable())
        context = getattr(session, "_sc", None)
        if context is not None and context.uiWebUrl:
            self.output.say(f"Spark UI: {context.uiWebUrl}")
        return session

    @contextmanager
    def following(self, session: SparkSession, bar: Progress) -> Iterator[None]:
        """Let a bar show what Spark does meanwhile: what, which stage, tasks done, rows taken in."""
        from ontologia.spark.progress import StageProgress, watch_stages

        def report(now: StageProgress) -> None:
            rows = f", {count_noun(now.rows, 'row')}" if now.rows else ""
            bar(now.tasks_done, f"{now.description} (stage {now.stage}{rows})", now.tasks)

        with watch_stages(session, report):
            yield

    @contextmanager
    def logging(self) -> Iterator[None]:
        """What the library logs goes to stderr, one line each."""
        level = logging.getLevelNamesMapping().get(self.settings.log_level)
        if level is None:
            known = ", ".join(name for name in logging.getLevelNamesMapping() if name != "NOTSET")
            raise UsageError(f"log level {self.settings.log_level!r} is unknown; known are {known}")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
        root = logging.getLogger()
        earlier = root.level
        root.addHandler(handler)
        root.setLevel(level)
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(earlier)

    def echo_target(self, doing: str = "target") -> None:
        """Before a write: say where it goes."""
        self.output.say(f"{doing}: {self.settings.where}{' (a new file)' if self.settings.is_missing() else ''}")


class _OneLine(logging.Formatter):
    """A record as a line for a terminal; names and values in it may be anybody's."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(escape, without_passwords(super().format(record)).split("\n")))


Command = Callable[..., Any]
Globals = Mapping[str, tuple[Any, Any]]
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def command(
    app: typer.Typer, name: str, *, example: str, takes: Globals = GLOBALS, **options: Any
) -> Callable[[Command], Command]:
    """Register a function whose first parameter is a `Run`; it also gets the global options."""

    def register(function: Command) -> Command:
        def call(ctx: typer.Context, **values: Any) -> Any:
            run = Run(remember(ctx, values))
            _check_not_empty(ctx, values)
            with run.logging(), run.until_done:
                try:
                    return function(run, **values)
                except OntologiaError as problem:
                    problem.args = (in_options(str(problem), _options(ctx)), *problem.args[1:])
                    raise

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        app.command(name, epilog=f"Example:  {example}", **options)(with_globals(call, own, takes))
        return function

    return register


def group(app: typer.Typer, name: str, help: str, *, takes: Globals = GLOBALS, **options: Any) -> typer.Typer:
    """A group of commands that takes the global options as well."""
    found = typer.Typer(no_args_is_help=True)

    def callback(ctx: typer.Context, **values: Any) -> None:
        remember(ctx, values)

    found.callback(help=help)(with_globals(callback, [], takes))
    app.add_typer(found, name=name, **options)
    return found


def remember(ctx: typer.Context, values: dict[str, Any]) -> GlobalOptions:
    """Take the global options of this level out of `values`, and add them to those typed before it."""
    shared = ctx.ensure_object(dict)
    earlier: GlobalOptions = shared.get(GIVEN, GlobalOptions())
    typed = {field.name: values.pop(field.name) for field in fields(GlobalOptions) if field.name in values}
    for parameter in ctx.command.params:
        if typed.get(parameter.name or "") == "":
            raise UsageError(f"{parameter.opts[0]} is empty: name one, or leave the option out")
    given = shared[GIVEN] = replace(earlier, **{name: value for name, value in typed.items() if value})
    return given


def _options(ctx: typer.Context) -> dict[str, str]:
    """The options of a command, by the names of the arguments they stand for."""
    longest = {(parameter.name or "").rstrip("_"): max(parameter.opts, key=len) for parameter in ctx.command.params}
    return {name: option for name, option in longest.items() if option.startswith("--")}


def _check_not_empty(ctx: typer.Context, values: Mapping[str, Any]) -> None:
    """An empty text is a variable that was not set, and never what somebody meant: it could name this very folder."""
    for parameter in ctx.command.params:
        value = values.get(parameter.name or "")
        if value == "" or (isinstance(value, (list, tuple)) and "" in value):
            said = max(parameter.opts, key=len)
            raise UsageError(f"{said if said.startswith('-') else said.upper()} is empty: name one")


def with_globals(
    function: Command, own: Sequence[inspect.Parameter] | None = None, takes: Globals = GLOBALS
) -> Command:
    """Give a function `(ctx, **values)` the signature of its own parameters and the global options, for the parser."""
    if own is None:
        everything = inspect.signature(function, eval_str=True).parameters.values()
        own = [parameter for parameter in everything if parameter.kind is not inspect.Parameter.VAR_KEYWORD][1:]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    shared = [
        inspect.Parameter(name, _KEYWORD, default=default, annotation=annotation)
        for name, (annotation, default) in takes.items()
    ]
    signed = [context, *(parameter.replace(kind=_KEYWORD) for parameter in own), *shared]
    function.__signature__ = inspect.Signature(signed)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in signed}
    return function


def metadata(pairs: Sequence[str] | None, option: str = "--meta") -> dict[str, str]:
    """`K=V` pairs as a mapping."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {pair!r}: write it as key=value")
        found[key.strip()] = value
    return found
