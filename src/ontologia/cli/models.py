"""Classes and upgraders from a module or a file, with errors that say what to do."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ontologia.cli.exits import UsageError
from ontologia.model import Entity, Relation, TypeRef

if TYPE_CHECKING:
    from ontologia.model import Declaration
    from ontologia.model.upgraders import Upgrader


_OURS = str(Path(__file__).parent.parent)


def load_models(names: Iterable[str]) -> dict[TypeRef, Declaration]:
    """Every entity and relation class that these modules define or import, and the endpoints of the relations."""
    found: dict[TypeRef, Declaration] = {}
    for name in names:
        classes = list(_classes(_load(name, "--models")))
        if not classes:
            raise UsageError(f"--models {name}: no Entity or Relation class there")
        for cls in classes:
            declaration = cls.__declaration__
            if found.setdefault(declaration.ref, declaration) is not declaration:
                raise UsageError(f"--models {name}: two classes are stored as {declaration.ref}; give one another name")
    return found


def load_steps(names: Iterable[str]) -> dict[tuple[str, int], Upgrader]:
    """Every upgrader that is registered once these modules are loaded."""
    from ontologia.model.upgraders import registered_upgraders, upgraders_of

    for name in names:
        if not upgraders_of(_load(name, "--upgraders")):
            raise UsageError(f"--upgraders {name}: no function marked with @upgrader there")
    return registered_upgraders()


def _classes(module: ModuleType) -> Iterator[type[Entity] | type[Relation]]:  # type: ignore[type-arg]
    for value in list(vars(module).values()):
        if not isinstance(value, type) or value in (Entity, Relation) or not issubclass(value, (Entity, Relation)):
            continue
        yield value
        yield from value.__declaration__.endpoints or ()


def _load(name: str, option: str) -> ModuleType:
    """Import a dotted module, or run a file. The working directory is on the path, as with `python -m`."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    is_file = name.endswith(".py") or "/" in name or Path(name).is_dir()
    try:
        return _load_file(name, option) if is_file else importlib.import_module(name)
    except UsageError:
        raise
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise UsageError(
                f"{option} {name}: there is no module {problem.name!r} in {here} or on the Python path"
            ) from problem
        raise UsageError(f"{option} {name} cannot be imported: {_describe(problem)}") from problem
    except Exception as problem:
        raise UsageError(f"{option} {name} cannot be imported: {_describe(problem)}") from problem


def _load_file(name: str, option: str) -> ModuleType:
    path = Path(name)
    is_package = path.is_dir()
    file = (path / "__init__.py" if is_package else path).resolve()
    if not file.is_file():
        raise UsageError(f"{option} {name}: there is no file {file}")
    folder = file.parent.parent if is_package else file.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module_name = file.parent.name if is_package else file.stem
    known = sys.modules.get(module_name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is not None or module_name in sys.stdlib_module_names:
        module_name = f"_onto_{abs(hash(str(file)))}_{module_name}"
    spec = importlib.util.spec_from_file_location(
        module_name, file, submodule_search_locations=[str(file.parent)] if is_package else None
    )
    if spec is None or spec.loader is None:
        raise UsageError(f"{option} {name}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _describe(problem: Exception) -> str:
    """What went wrong, and in which line of the user's file."""
    trace = problem.__traceback__
    where = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(("<", _OURS)) and "importlib" not in file:
            where = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    if isinstance(problem, SyntaxError):
        where = f" ({problem.filename}:{problem.lineno})"
        return f"SyntaxError: {problem.msg}{where}"
    return f"{type(problem).__name__}: {problem}{where}"
