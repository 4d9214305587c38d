"""Schema migrations: what they would do, and doing it (RFC 0009 §6)."""

from ontologia.runtime.migration.carrying import carry_over, open_target, rewrite_rows, upgrade_step
from ontologia.runtime.migration.effects import FieldEffect
from ontologia.runtime.migration.planning import Step, is_automatic, plan_step
from ontologia.runtime.migration.results import MigrationCheck, MigrationPreview, MigrationResult, RowCounts
from ontologia.runtime.migration.running import apply, check, commit_metadata, preview

__all__ = [
    "FieldEffect",
    "MigrationCheck",
    "MigrationPreview",
    "MigrationResult",
    "RowCounts",
    "Step",
    "apply",
    "carry_over",
    "check",
    "commit_metadata",
    "is_automatic",
    "open_target",
    "plan_step",
    "preview",
    "rewrite_rows",
    "upgrade_step",
]
