"""Random migrations of a random model: fields added, dropped, widened, renamed and upgraded; types renamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from ontologia.model import Declaration, Declared, Field, TypeRef
from ontologia.testing.strategies.models import (
    FIELD_NAMES,
    TYPE_NAMES,
    Kind,
    RandomModel,
    RandomType,
    declare_entity,
    declare_relation,
    json_kinds,
    relation_rows,
    scalar_kinds,
)

KINDS = {kind.name: kind for kind in (*scalar_kinds(), *json_kinds())}
LISTED = st.lists(st.integers(-2, 2), max_size=2)
Row = dict[str, Any]
Steps = dict[tuple[str, int], Callable[[Row], Row]]
IDENTITY = ("left_key", "right_key")


@dataclass
class Draft:
    """A type on its way to its next version: fields by name, their options, and what its upgrader does to which."""

    old: RandomType
    name: str
    kinds: dict[str, Kind]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    upgraded: dict[str, Callable[[Any], Any]] = field(default_factory=dict)

    @property
    def declaration(self) -> Declaration:
        found: Declaration = self.old.cls.__declaration__
        return found

    @property
    def key(self) -> str | None:
        """What the primary key or the instance key is called."""
        before = self.declaration.primary_key or self.declaration.instance_key
        renamed = {given.get("renamed_from"): new for new, given in self.options.items()}
        return None if before is None else renamed.get(before, before)

    @property
    def renamed_from(self) -> str | None:
        before = self.declaration.ref.name
        return None if before == self.name else before


@st.composite
def migrations(
    draw: st.DrawFn, model: RandomModel, versions: dict[TypeRef, int], used: set[str]
) -> tuple[RandomModel, Steps]:
    """The next model, and the upgraders that it takes to get there from these versions. No type takes a `used` name."""
    taken = {item.cls.__declaration__.ref.name for item in model.types} | used
    drafts: list[Draft] = []
    steps: Steps = {}
    for item in model.types:
        draft = _draw_draft(draw, item, taken)
        drafts.append(draft)
        ref = draft.declaration.ref
        if draft.upgraded and ref in versions:
            steps[ref.name, versions[ref]] = RandomUpgrader(dict(draft.upgraded))
    count = len(model.entities)
    entities = [_entity(draft) for draft in drafts[:count]]
    by_class = {old.cls: new for old, new in zip(model.entities, entities, strict=True)}
    return RandomModel(entities, [_relation(draft, by_class) for draft in drafts[count:]]), steps


@dataclass(frozen=True)
class RandomUpgrader:
    """What becomes of each field. It can be pickled, for upgraders that run elsewhere."""

    changes: Mapping[str, Callable[[Any], Any]]

    def __call__(self, row: Row) -> Row:
        return {**row, **{name: change(row[name]) for name, change in self.changes.items()}}


@dataclass(frozen=True)
class Fixed:
    """Makes every value the same."""

    value: Any

    def __call__(self, _: Any) -> Any:
        return self.value


def _draw_draft(draw: st.DrawFn, item: RandomType, taken: set[str]) -> Draft:
    kinds = {name: kind for name, kind in item.kinds.items() if name not in IDENTITY}
    draft = Draft(item, item.cls.__declaration__.ref.name, kinds)
    if draw(st.integers(0, 5)) == 0:
        free = [name for name in TYPE_NAMES if name not in taken]
        if free:
            draft.name = draw(st.sampled_from(free))
            taken.add(draft.name)
    for change in draw(st.lists(st.sampled_from((_add, _drop, _widen, _rename, _upgrade)), max_size=3)):
        change(draw, draft)
    return draft


def _find_touched(draft: Draft) -> set[str]:
    """What one migration changes once: names that were there, that are new, and that were given up."""
    before = {given["renamed_from"] for given in draft.options.values() if "renamed_from" in given}
    return {*draft.options, *draft.upgraded, *before, *draft.old.kinds.keys() - draft.kinds.keys()}


def _free_name(draw: st.DrawFn, draft: Draft) -> str:
    return draw(st.sampled_from([name for name in FIELD_NAMES if name not in {*draft.kinds, *draft.old.kinds}]))


def _field(draw: st.DrawFn, draft: Draft) -> str | None:
    names = sorted(draft.kinds.keys() - _find_touched(draft) - {draft.key or ""})
    return draw(st.sampled_from(names)) if names else None


def _add(draw: st.DrawFn, draft: Draft) -> None:
    name, kind = _free_name(draw, draft), draw(st.sampled_from(list(KINDS.values())))
    optional = kind.name.endswith("| None") or kind.name == "Any"
    draft.kinds[name] = kind
    draft.options[name] = {} if optional and draw(st.booleans()) else {"default": draw(kind.values)}


def _drop(draw: st.DrawFn, draft: Draft) -> None:
    name = _field(draw, draft)
    if name is not None:
        del draft.kinds[name]


def _widen(draw: st.DrawFn, draft: Draft) -> None:
    name = _field(draw, draft)
    if name is None:
        return
    kind = draft.kinds[name]
    wider = [KINDS[f"{kind.name} | None"]] if f"{kind.name} | None" in KINDS else []
    if kind.name in ("int", "str", "int | None", "str | None"):
        wider.append(KINDS["int | str | None"])
    if kind.name in ("int", "str", "bool", "list[str]", "list[int]", "int | str | None"):
        wider.append(KINDS["Any"])
    if kind.name in ("int", "bool", "datetime", "date", "bytes"):
        wider.append(Kind(f"{kind.name} | list[int]", kind.annotation | list[int], kind.values | LISTED, scalar=False))
    if wider:
        draft.kinds[name] = draw(st.sampled_from(wider))
        draft.options[name] = {}


def _rename(draw: st.DrawFn, draft: Draft) -> None:
    names = sorted(draft.kinds.keys() - _find_touched(draft))
    if names:
        name = draw(st.sampled_from(names))
        new = _free_name(draw, draft)
        draft.kinds = {new if known == name else known: kind for known, kind in draft.kinds.items()}
        draft.options[new] = {"renamed_from": name}


def _upgrade(draw: st.DrawFn, draft: Draft) -> None:
    name = _field(draw, draft)
    if name is None:
        return
    how = draw(st.sampled_from(("text", "fixed")))
    kind = KINDS["str"] if how == "text" else draw(st.sampled_from(list(KINDS.values())))
    if how == "fixed":
        draft.upgraded[name] = Fixed(draw(kind.values))
    else:
        draft.upgraded[name] = _describe
    draft.kinds[name] = kind


def _describe(old: Any) -> str:
    """A text of a value that is the same before and after it was stored."""
    return f"was {old}" if isinstance(old, (str, int)) else f"was a {type(old).__name__}"


def _entity(draft: Draft) -> RandomType:
    key = draft.key or ""
    annotations = {name: kind.annotation for name, kind in draft.kinds.items()}
    options: dict[str, Any] = {name: Field(**given) for name, given in draft.options.items() if given and name != key}
    cls = declare_entity(draft.name, key, annotations, options=options, **_earlier_names(draft, key))
    values = st.fixed_dictionaries({name: kind.values for name, kind in draft.kinds.items()})
    return RandomType(cls, draft.kinds, values.map(lambda row: cls(**row)))


def _relation(draft: Draft, by_class: dict[type[Declared], RandomType]) -> RandomType:
    left, right = (by_class[end] for end in draft.declaration.endpoints or ())
    key = draft.key
    annotations = {name: kind.annotation for name, kind in draft.kinds.items()}
    options: dict[str, Any] = {name: Field(**given) for name, given in draft.options.items() if given and name != key}
    cls = declare_relation(
        draft.name, left.cls, right.cls, annotations, instance_key=key, options=options, **_earlier_names(draft, key)
    )
    return relation_rows(cls, left, right, draft.kinds)


def _earlier_names(draft: Draft, key: str | None) -> dict[str, Any]:
    """What the class and its key were called before."""
    return {
        "renamed_from": draft.renamed_from,
        "key_renamed_from": draft.options.get(key or "", {}).get("renamed_from"),
    }
