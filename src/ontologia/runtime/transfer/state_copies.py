"""An export that has a state becomes a store: one commit in an empty place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ontologia.config import OntologiaConfig
from ontologia.engines.copies import check_free
from ontologia.engines.dispatch import open_repository
from ontologia.engines.initializing import initialize_storage
from ontologia.errors import UninitializedStorageError, ValidationError
from ontologia.model import Declared
from ontologia.runtime.store import Store
from ontologia.runtime.transfer.export_source import is_export, is_exported_history
from ontologia.runtime.transfer.exporting import Progress
from ontologia.runtime.transfer.importing import ImportReport, import_data


def copy_state(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    engine_version: str | None = None,
    types: Iterable[type[Declared]] = (),
    config: OntologiaConfig | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Make a store of an exported state, as its first commit. One that was cut off is an empty store, and gone on with.

    `types` are the classes, which exports of 0.3 need: they do not say what their types are.
    """
    origin, place = os.fspath(source), os.fspath(target)
    if not is_export(origin):
        raise ValidationError(f"{origin} is not an export: the state of a store goes by onto export and onto import")
    if is_exported_history(origin):
        raise ValidationError(f"{origin} has a history, and this would leave one commit of it: use copy_history")
    if not _is_empty_store(place, config):
        check_free(place, config)
        initialize_storage(place, config=config, engine_version=engine_version)
    declarations = {cls.__declaration__.ref: cls.__declaration__ for cls in types}
    with Store(open_repository(place, config=config, engine_version=engine_version), declarations) as store:
        return import_data(store, Path(origin), dry_run=False, progress=progress)


def _is_empty_store(place: str, config: OntologiaConfig | None) -> bool:
    """Whether a store is there that has no commit yet."""
    if "://" not in place and not Path(place).exists():
        return False
    try:
        with open_repository(place, config=config, make_file=False) as repository:
            return repository.get_head_commit_id() == 0
    except UninitializedStorageError:
        return False
