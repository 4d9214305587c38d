"""What differs between two versions of a table, found by fragments: what both versions share is never read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontologia.files.row_spools import RowSpool
from ontologia.omnigraph.lookups import among

if TYPE_CHECKING:
    from lance import LanceDataset

CREATED, UPDATED = "_row_created_at_version", "_row_last_updated_at_version"


@dataclass(frozen=True)
class RowDifference:
    """Rows by id: new ones, changed ones before and after (in the same order), and removed ones."""

    inserted: pa.Table
    before: pa.Table
    after: pa.Table
    deleted: pa.Table

    @property
    def ids(self) -> set[str]:
        return {text for table in (self.inserted, self.after, self.deleted) for text in table.column("id").to_pylist()}

    @property
    def written(self) -> pa.Table:
        """The rows that are new or changed, as they are now."""
        return pa.concat_tables([self.inserted, self.after])

    def __bool__(self) -> bool:
        return bool(self.inserted.num_rows or self.after.num_rows or self.deleted.num_rows)


def compare(old: LanceDataset | None, new: LanceDataset | None) -> RowDifference:
    """The difference between two versions, which may lie on different branches, or not exist at all.

    A compaction moves rows without changing them; they are read and found equal.
    """
    given = new if new is not None else old
    assert given is not None
    schema = given.schema.remove_metadata()
    gone, come = _find_touched(old, new)
    was, now = _conform(gone, schema), _conform(come, schema)
    places = pc.index_in(now.column("id"), value_set=was.column("id").combine_chunks())
    known = pc.is_valid(places)
    inserted = now.filter(pc.invert(known))
    after = now.filter(known)
    before = was.take(places.drop_null()) if after.num_rows else was[:0]
    changed = pc.invert(equal_rows(before, after))
    deleted = was.filter(pc.invert(pc.is_in(was.column("id"), value_set=now.column("id").combine_chunks())))
    assert isinstance(inserted, pa.Table)
    return RowDifference(inserted, before.filter(changed), after.filter(changed), deleted)


@dataclass(frozen=True)
class Written:
    """What a lineage did since a version: rows as they are now, and ids that are gone. Rows may be as they were."""

    rows: pa.Table
    deleted: list[str]

    def both(self, other: Written) -> set[str]:
        """The ids that this lineage and another wrote or deleted."""
        mine, theirs = (
            pa.chunked_array([*it.rows.column("id").chunks, pa.array(it.deleted, pa.string())], pa.string())
            for it in (self, other)
        )
        return set(among(mine, theirs).to_pylist())


def find_written(old: LanceDataset | None, new: LanceDataset, *, descends: bool) -> Written:
    """What happened between a version and one that descends from it, from what its own fragments say.

    A row knows the versions it was created and last updated at, also after a compaction moved it. So the rows that were
    written are those of new fragments with a later version, and how many are gone follows by counting. Only where some
    are, or where the versions are not of one line, both sides are compared.
    """
    if old is not None and descends:
        fresh = _fresh_fragments(old, new)
        if fresh is not None:
            later = f"{UPDATED} > {old.version}"
            return Written(_conform(_read(new, fresh, later), new.schema.remove_metadata()), [])
    difference = compare(old, new)
    return Written(difference.written, difference.deleted.column("id").to_pylist())


def find_deleted(old: LanceDataset, new: LanceDataset) -> pa.Table | None:
    """The rows that a version has and one that descends from it has not, as they were; None where there are none."""
    return None if _fresh_fragments(old, new) is not None else compare(old, new).deleted


def _fresh_fragments(old: LanceDataset, new: LanceDataset) -> list[Any] | None:
    """The fragments that came since a version, where counting tells that no row was deleted since; else None."""
    before, after = _fragments(old), _fragments(new)
    fresh = [item for files, item in after.items() if files not in before]
    if any(_lost(before[files], after[files]) < 0 for files in before.keys() & after.keys()):
        return None
    if _count(new, fresh, f"{CREATED} <= 1"):
        return None  # tables begin empty: an older Lance merged these rows in, and does not say when
    created = _count(new, fresh, f"{CREATED} > {old.version}")
    lost = sum(_lost(item, after.get(files)) for files, item in before.items())
    kept = sum(item.count_rows() for item in fresh) - created  # updated, or only moved
    return fresh if lost == kept else None


def _lost(before: Any, after: Any | None) -> int:
    """How many rows of a fragment are not there any more."""
    return int(before.count_rows() - (0 if after is None else after.count_rows()))


def _count(dataset: LanceDataset, fragments: Sequence[Any], where: str) -> int:
    """How many rows of these fragments pass a filter."""
    if not fragments:
        return 0
    return int(dataset.scanner(filter=where, fragments=list(fragments)).count_rows())


def _find_touched(old: LanceDataset | None, new: LanceDataset | None) -> tuple[pa.Table | None, pa.Table | None]:
    """The rows of each side that the other does not have in the very same place."""
    before, after = _fragments(old), _fragments(new)
    only_old = [item for files, item in before.items() if files not in after]
    only_new = [item for files, item in after.items() if files not in before]
    gone, come = _read(old, only_old), _read(new, only_new)
    for files in before.keys() & after.keys():
        left, right = before[files], after[files]
        if _deletions(left) != _deletions(right):
            assert old is not None
            assert new is not None
            lost, found = _difference_of_places(old, left, new, right)
            gone, come = _join(gone, lost), _join(come, found)
    return gone, come


def _fragments(dataset: LanceDataset | None) -> dict[tuple[str, ...], Any]:
    """Fragments by their data files, whose names are unique. Overlaid ones are told apart by what lies over them."""
    if dataset is None:
        return {}
    return {
        (*(file.path for file in fragment.metadata.files), *map(str, fragment.metadata.overlays)): fragment
        for fragment in dataset.get_fragments()
    }


def _deletions(fragment: Any) -> tuple[int, int] | None:
    file = fragment.metadata.deletion_file
    return None if file is None else (file.read_version, file.id)


def _read(dataset: LanceDataset | None, fragments: Sequence[Any], where: str | None = None) -> pa.Table | None:
    """The rows of fragments. Many of them go to a local file: a merge does not hold what it merges."""
    if dataset is None or not fragments:
        return None if dataset is None else dataset.schema.empty_table()
    batches = dataset.scanner(fragments=list(fragments), filter=where).to_batches()
    return RowSpool(dataset.schema).extend(pa.Table.from_batches([batch]) for batch in batches).table()


def _difference_of_places(old: Any, left: Any, new: Any, right: Any) -> tuple[pa.Table, pa.Table]:
    """Rows alive on one side only, where both have the same files and other deletions."""
    mask = 0xFFFFFFFF
    sides = []
    for dataset, fragment in ((old, left), (new, right)):
        found = dataset.scanner(columns=[], with_row_id=True, with_row_address=True, fragments=[fragment]).to_table()
        sides.append((found.column("_rowid").to_numpy(), found.column("_rowaddr").to_numpy() & mask))
    (old_ids, old_places), (new_ids, new_places) = sides
    lost = old_ids[~np.isin(old_places, new_places, assume_unique=True)]
    found = new_ids[~np.isin(new_places, old_places, assume_unique=True)]
    return _take(old, left, lost), _take(new, right, found)


def _take(dataset: Any, fragment: Any, row_ids: Any) -> pa.Table:
    if not len(row_ids):
        return dataset.schema.empty_table()
    if len(row_ids) * 50 < fragment.physical_rows:
        return dataset._take_rows(row_ids.tolist())
    rows = dataset.scanner(fragments=[fragment], with_row_id=True).to_table()
    return rows.filter(pc.is_in(rows.column("_rowid"), value_set=pa.array(row_ids))).drop_columns(["_rowid"])


def _join(left: pa.Table | None, right: pa.Table) -> pa.Table:
    return right if left is None else pa.concat_tables([left, right.cast(left.schema)])


def _conform(table: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """Rows in the columns of a schema; what an older schema lacks is null, what it had besides is left out."""
    if table is None:
        return schema.empty_table()
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names and _castable(table.schema.field(field.name).type, field.type)
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    loose = pa.schema([pa.field(field.name, field.type) for field in schema])
    return pa.Table.from_arrays(columns, schema=loose)


def _castable(left: pa.DataType, right: pa.DataType) -> bool:
    return bool(left == right)


def equal_rows(left: pa.Table, right: pa.Table) -> pa.ChunkedArray:
    """Row by row, whether all columns agree. Null is only equal to null, and not-a-number to itself."""
    equal: Any = pa.chunked_array([pa.array([True] * left.num_rows, pa.bool_())])
    for name in left.column_names:
        equal = pc.and_(equal, equal_values(left.column(name), right.column(name)))
    return equal


def equal_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Any:
    if pa.types.is_nested(left.type):
        pairs: Iterable[tuple[Any, Any]] = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return pa.chunked_array([pa.array([a == b for a, b in pairs], pa.bool_())])
    same = pc.fill_null(pc.equal(left, right), False)
    same = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return same
