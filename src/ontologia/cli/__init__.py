"""`onto`, the operator's console. Reads never write; every write can be previewed; destructive work needs a token."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None, *, group: str | None = None) -> int:
    """Run one command and give its exit code. A failure is one line on stderr; `--debug` adds the traceback. `group` is
    one that was called by its own name."""
    from ontologia.cli import exits
    from ontologia.cli.app import build
    from ontologia.cli.filters import join_filters
    from ontologia.cli.output import ReaderLeft
    from ontologia.errors import CommitAfterHeadWarning, HistoryCutWarning

    given = list(sys.argv[1:] if arguments is None else arguments)
    name, parent = (group, "") if group else ("onto", "onto")
    given = [group, *given] if group else given
    for said in (CommitAfterHeadWarning, HistoryCutWarning):  # answers carry it, and the console says it in its own way
        warnings.simplefilter("ignore", said)
    try:
        code = build(in_panels=sys.stdout.isatty())(join_filters(given), prog_name=parent, standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, ReaderLeft):
        exits.close_broken_pipe()
        return exits.OK
    except KeyboardInterrupt as problem:
        return exits.report_interrupt(problem, name, debug="--debug" in given)
    except Exception as problem:
        exits.report(problem, name, debug="--debug" in given)
        return exits.code_of(problem)
    if code == exits.INTERRUPTED:  # the parser caught it
        print(f"{name}: interrupted", file=sys.stderr)
    return code if isinstance(code, int) else exits.OK


def apiary() -> int:
    """The command `apiary`: the group `onto apiary` under its own name."""
    return main(group="apiary")
