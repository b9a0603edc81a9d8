"""Every reason that the API and the layers below it name is one of the contract's.

The adapters' own reasons (a schema that is too old) concern those who run the server.
"""

import ast
from pathlib import Path

import mainspring_server
from mainspring.v1 import error_pb2
from mainspring_server.domain import errors

KNOWN = {
    name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.DESCRIPTOR.values_by_name
}
CLASSES = {cls.__name__ for cls in errors.MainspringError.__subclasses__()}


def test_reasons() -> None:
    source = Path(mainspring_server.__file__).parent
    found: dict[str, str] = {}
    places = ("api/*.py", "admission/*.py", "dispatch/*.py", "domain/*.py", "*.py")
    for path in (path for place in places for path in source.glob(place)):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            first = node.args[0]
            if name in CLASSES and isinstance(first, ast.Constant):
                found[str(first.value)] = path.name
    assert found
    assert {reason: place for reason, place in found.items() if reason not in KNOWN} == {}
