"""The public surfaces are what the files of `public_api` say; a change of one is a decision.

After one, `MAINSPRING_WRITE_API=1 pytest tests/unit/test_public_api.py` writes them anew; the
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

import pytest

RECORDS = Path(__file__).with_name("public_api")
PACKAGES = {
    "mainspring": ("errors", "retry", "testing"),
    "mainspring_worker": ("testing",),
}


def surface(package: str) -> Iterator[str]:
    """One line for each public name, member and parameter list."""
    seen = set()
    for module_name in (package, *(f"{package}.{part}" for part in PACKAGES[package])):
        module = importlib.import_module(module_name)
        for name in sorted(vars(module) if module_name != package else module.__all__):
            value = getattr(module, name)
            if name.startswith("_") or inspect.ismodule(value) or id(value) in seen:
                continue
            if module_name != package and name not in defined(module):
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
    plain = issubclass(cls, BaseException) and not any(
        "__init__" in vars(base) for base in cls.__mro__ if ours(base)
    )
    return plain or issubclass(cls, Enum | dict) or getattr(cls, "_is_protocol", False)


def parameters(value: Any) -> str:
    """Names, kinds and defaults; types are for the type checker."""
    if not inspect.isroutine(value) and (not isinstance(value, type) or made_by_others(value)):
        return ""
    signature = inspect.signature(value)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_public_surface(package: str) -> None:
    text = "\n".join(surface(package)) + "\n"
    record = RECORDS / f"{package}.txt"
    if os.environ.get("MAINSPRING_WRITE_API"):
        record.write_text(text)
    assert text == record.read_text()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_explained(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, type):
            assert (value.__doc__ or "").strip(), name
            assert not (value.__doc__ or "").startswith(f"{name}("), name
