"""The public surface is what `api.txt` says; a change of it is a decision.

After one, `MAINSPRING_WRITE_API=1 pytest tests/unit/sdk/test_api.py` writes the file anew; its
difference belongs into the review and the changelog.
"""

import dataclasses
import importlib
import inspect
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
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
            home = getattr(value, "__module__", module_name)
            if name.startswith("_") or inspect.ismodule(value) or id(value) in seen:
                continue
            if module_name not in {"mainspring", home}:
                continue
            seen.add(id(value))
            yield f"{module_name}.{name}{parameters(value)}"
            if isinstance(value, type):
                yield from (f"    {line}" for line in members(value))


def members(cls: type[Any]) -> Iterator[str]:
    bases = [
        base.__name__ for base in cls.__mro__[1:-1] if base.__module__.startswith("mainspring")
    ]
    yield f"bases: {', '.join(bases)}"
    if issubclass(cls, Enum):
        yield from (f"{member.name} = {member.value}" for member in cls)
    if dataclasses.is_dataclass(cls):
        yield f"frozen: {cls.__dataclass_params__.frozen}"
    for name, value in sorted(inspect.getmembers(cls)):
        inherited = name not in {n for base in cls.__mro__ if ours(base) for n in vars(base)}
        if not name.startswith("_") and not inherited and not isinstance(value, Enum):
            yield f"{name}{parameters(value)}"


def ours(cls: type[Any]) -> bool:
    return cls.__module__.startswith("mainspring")


def parameters(value: Any) -> str:
    """Names, kinds and defaults; types are for the type checker."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, Enum | dict)):
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
