"""What an answer says besides its rows, in words on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ontologia.cli.output import Output


def tell(output: Output, diagnostics: Iterable[Mapping[str, Any]]) -> None:
    """Warn of everything an answer has to say about itself."""
    for diagnostic in diagnostics:
        output.warn(describe_diagnostic(diagnostic))


def describe_diagnostic(diagnostic: Mapping[str, Any]) -> str:
    """A diagnostic in words."""
    match diagnostic["reason"]:
        case "commit_before_activation":
            since, of = diagnostic["activation_commit_id"], diagnostic.get("type")
            rows = "rows" if of is None else f"rows of {of}"
            if since == 1:
                return "there was nothing before commit 1"
            return (
                f"{rows} are readable since commit {since}, when the current schema became active; those of earlier "
                "schemas, if there were any, with --across-versions"
            )
        case "history_before_activation":
            since, of = diagnostic["activation_commit_id"], diagnostic.get("type")
            rows = "rows" if of is None else f"rows of {of}"
            return (
                f"{rows} from before commit {since}, when the current schema became active, are left out: "
                "--across-versions reads them, too"
            )
        case "commit_after_head":
            wanted, head = diagnostic["commit_id"], diagnostic["head_commit_id"]
            return f"commit {wanted} is not there yet: this is the state at the head, commit {head}"
        case "type_dropped":
            of = diagnostic.get("type", "this type")
            return f"{of} was dropped: it reads as empty, also as of commits when it was there"
        case "history_forgotten":
            return f"history begins at commit {diagnostic['base_commit_id']}: what was superseded by then was given up"
        case "index_lagging" | "index_latest_entry_missing":
            return f"the index of {diagnostic['type']} lags behind the head: run onto index repair --apply"
        case "compaction_overdue":
            of, files = diagnostic["type"], diagnostic["files"]
            return f"{of} is in {files} files, which slows every question down: run onto compact --apply"
    return json.dumps(diagnostic, default=str)
