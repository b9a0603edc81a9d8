"""The public surface is what `api.txt` says; a change of it is a decision.

After one, `MAINSPRING_WRITE_API=1 pytest tests/unit/sdk/test_api.py` writes the file anew; its
difference belongs into the review and the changelog.
"""

import ast
import dataclasses
import importlib
import inspect
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import mainspring

RECORD = Path(__file__).with_name("api.txt")
MODULES = ("mainspring", "mainspring.errors", "mainspring.retry", "mainspring.testing")


def surface() -> Iterator[str]:
    """One line for each public name, member and parameter list."""
    seen = set()
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in sorted(vars(module) if module_name != "mainspring" else module.__all__):
            value = getattr(module, name)
            if name.startswith("_") or inspect.ismodule(value) or id(value) in seen:
                continue
            if module_name != "mainspring" and name not in defined(module):
                continue
            seen.add(id(value))
            yield f"{module_name}.{name}{parameters(value)}"
            if isinstance(value, type):
                yield from (f"    {line}" for line in members(value))


def defined(module: ModuleType) -> set[str]:
    """The names that a module gives values itself."""
    names = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def members(cls: type[Any]) -> Iterator[str]:
    bases = [
        base.__name__ for base in cls.__mro__[1:-1] if base.__module__.startswith("mainspring")
    ]
    if bases:
        yield f"bases: {', '.join(bases)}"
    if issubclass(cls, Enum):
        yield from (f"{member.name} = {member.value}" for member in cls)
    if issubclass(cls, dict):
        yield from cls.__annotations__
    fields: set[str] = set()
    if dataclasses.is_dataclass(cls):
        # Its fields are the parameters that make it.
        fields = {field.name for field in dataclasses.fields(cls)}
        yield f"frozen: {cls.__dataclass_params__.frozen}"
    for name, value in sorted(inspect.getmembers(cls)):
        own = any(name in vars(base) for base in cls.__mro__ if ours(base))
        if own and not name.startswith("_") and name not in fields and not isinstance(value, Enum):
            yield f"{name}{parameters(value)}"


def ours(cls: type[Any]) -> bool:
    return cls.__module__.startswith("mainspring")


def made_by_others(cls: type[Any]) -> bool:
    """Whether Python chose the parameters that make it."""
    return issubclass(cls, Enum | dict) or getattr(cls, "_is_protocol", False)


def parameters(value: Any) -> str:
    """Names, kinds and defaults; types are for the type checker."""
    if not inspect.isroutine(value) and (not isinstance(value, type) or made_by_others(value)):
        return ""
    signature = inspect.signature(value)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def test_the_public_surface() -> None:
    text = "\n".join(surface()) + "\n"
    if os.environ.get("MAINSPRING_WRITE_API"):
        RECORD.write_text(text)
    assert text == RECORD.read_text()


def test_every_public_name_is_explained() -> None:
    for name in mainspring.__all__:
        value = getattr(mainspring, name)
        if isinstance(value, type):
            assert (value.__doc__ or "").strip(), name
            assert not (value.__doc__ or "").startswith(f"{name}("), name
