"""The way of a stored version's rows to today's schema: a projection, or a journey past the upgraders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ontologia.engines.documents import scalar_from_json
from ontologia.engines.upgrading import Journey, Leg
from ontologia.engines.versions import Version
from ontologia.errors import MissingUpgraderError, ValidationError
from ontologia.model import Column, Declaration, TypeSchema, TypeSchemaDiff, encode_json
from ontologia.model.carrying import effect_on, name_before
from ontologia.model.typespec import accepts_none
from ontologia.model.upgraders import Upgrader, Upgraders
from ontologia.query.carried_rows import ColumnSource


class _NoValue:
    """Marks a field for which rows without it have no value that anybody knows."""


NO_VALUE = _NoValue()


@dataclass(frozen=True, slots=True)
class Way:
    """From the first of these versions to the last one, which is in force."""

    versions: Sequence[Version]
    target: TypeSchema
    declaration: Declaration | None
    upgraders: Upgraders

    @property
    def journey(self) -> Journey | None:
        """The way as a row has to go it, where an upgrader is on it; None where a projection is all it takes."""
        last = max((number for number in range(self._steps) if self._functions(number)), default=None)
        if last is None:
            return None
        if self.declaration is None:
            ref, names = self.versions[0].layout.ref, ", ".join(self._named_functions())
            raise ValidationError(
                f"rows of {ref} in version {self.versions[0].layout.schema_version_id} pass the upgrader {names}, and "
                f"the class of {self.target.ref} has to validate what it makes: name the module with the class"
            )
        legs = tuple(self._leg(number, before_function=number < last) for number in range(self._steps))
        return Journey(self.versions[0].schema, self.declaration, legs)

    def projection(self) -> tuple[ColumnSource, ...]:
        """Where each column of today comes from, when no upgrader is on the way. What needs one is an error."""
        for number in range(self._steps):
            if self._change(number).identity:
                raise self._missing(number, "; ".join(self._change(number).identity))
        return tuple(self._source(column) for column in self.target.columns)

    def _source(self, column: Column) -> ColumnSource:
        name = column.name
        for number in reversed(range(self._steps)):
            change = self._change(number)
            value = self._value(number, name, column.name)
            match effect_on(change, name, fillable=value is not NO_VALUE):
                case "needs_upgrader":
                    raise self._missing(number, _why(change, name))
                case "filled":
                    return ColumnSource(column, None, value)
            name = name_before(change, name)
        return ColumnSource(column, self.versions[0].schema.by_name[name])

    def _leg(self, number: int, *, before_function: bool) -> Leg:
        """One step. Where an upgrader follows, it must find the fields that this step brings."""
        change, functions, schema = self._change(number), self._functions(number), self.versions[number + 1].schema
        filled: dict[str, Any] = {}
        for name in schema.names:
            today = self._name_today(number + 1, name)
            value = self._value(number, name, today)
            # What is gone again today is nobody's concern, unless an upgrader looks for it.
            fillable = value is not NO_VALUE or (today is None and not before_function)
            if not functions and effect_on(change, name, fillable=fillable) == "needs_upgrader":
                raise self._missing(number, _why(change, name))
            recorded = name in self.versions[number].filled
            if name in change.added and value is not NO_VALUE and (recorded or (before_function and not functions)):
                filled[name] = _python_value(schema.by_name[name], value)
        if change.identity and not functions:
            raise self._missing(number, "; ".join(change.identity))
        return Leg(schema, change, functions, filled)

    def _value(self, number: int, name: str, today: str | None) -> Any:
        """What a field that a step brought has in earlier rows: what its migration wrote, else the default of the
        class, else null. As storage has it."""
        version = self.versions[number]
        column = self.versions[number + 1].schema.by_name.get(name)
        if column is None or name not in self._change(number).added:
            return NO_VALUE
        if name in version.filled:
            return _stored_value(column if today is None else self.target.by_name[today], version.filled[name])
        declaration = self.declaration
        if declaration is not None and today is not None and not declaration.options[today].required:
            default, column = declaration.default_of(today), declaration.schema.by_name[today]
            return default if default is None or column.scalar is not None else encode_json(default)
        return None if accepts_none(column.spec) else NO_VALUE

    def _name_today(self, number: int, name: str) -> str | None:
        """What a field of a version is called in the last one; None where it did not get there as it was."""
        found: str | None = name
        for later in range(number, self._steps):
            change = self._change(later)
            if found is None or found in change.removed or found in [item.name for item in change.changed]:
                return None
            found = dict(change.renamed).get(found, found)
        return found if found in self.target.by_name else None

    @property
    def _steps(self) -> int:
        return len(self.versions) - 1

    def _change(self, number: int) -> TypeSchemaDiff:
        change = self.versions[number].change
        assert change is not None
        return change

    def _numbers(self, number: int) -> list[tuple[str, int]]:
        """What upgraders of a step are registered under. A store may have skipped versions that the code went through;
        under another name, versions are counted anew."""
        layout, later = self.versions[number].layout, self.versions[number + 1].layout
        end = later.schema_version_id if later.ref == layout.ref else layout.schema_version_id + 1
        return [(layout.ref.name, version) for version in range(layout.schema_version_id, end)]

    def _functions(self, number: int) -> tuple[Upgrader, ...]:
        return tuple(self.upgraders[key] for key in self._numbers(number) if key in self.upgraders)

    def _named_functions(self) -> list[str]:
        keys = (key for number in range(self._steps) for key in self._numbers(number) if key in self.upgraders)
        return [f"{name} from version {version}" for name, version in keys]

    def _missing(self, number: int, why: str) -> MissingUpgraderError:
        missing = [key for key in self._numbers(number) if key not in self.upgraders]
        stored, later = self.versions[0].layout, self.versions[number + 1].layout
        version = f"{later.ref} in version {later.schema_version_id}"
        return MissingUpgraderError(
            missing, reading=f"rows of {stored.ref} in version {stored.schema_version_id} as {version} ({why})"
        )


def _why(change: TypeSchemaDiff, name: str) -> str:
    found = next((str(item) for item in change.changed if item.name == name), None)
    return found or f"{name} is new, and has no value in earlier rows"


def _stored_value(column: Column, value: Any) -> Any:
    """A value as a note has it, as storage has it."""
    if value is None:
        return None
    return encode_json(value) if column.scalar is None else scalar_from_json(column.scalar, value)


def _python_value(column: Column, value: Any) -> Any:
    """A stored value as an upgrader sees it."""
    return json.loads(value) if column.scalar is None and value is not None else value
