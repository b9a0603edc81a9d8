"""The index on disk: JSON Lines, one object a file, in the order of the paths."""

import base64
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def entry(path: str, content: dict[str, Any], attempts: int) -> dict[str, Any]:
    r"""One line of the index.

    A path is as it is if it is UTF-8. Otherwise each byte that is not reads `\xHH` in `path`, for
    people, and `path_base64` holds the path's bytes, for programs.
    """
    raw = os.fsencode(path)
    line: dict[str, Any] = {"path": raw.decode("utf-8", "backslashreplace"), **content}
    line["attempts"] = attempts
    if line["path"] != path:
        line["path_base64"] = base64.b64encode(raw).decode()
    return line


def write_index(file: Path, entries: Iterable[dict[str, Any]]) -> None:
    """Replace the file as a whole: a reader sees the old index or the new one."""
    with tempfile.NamedTemporaryFile(
        "w", dir=file.parent, prefix=f".{file.name}.", encoding="utf-8", delete=False
    ) as draft:
        try:
            for line in entries:
                draft.write(json.dumps(line, ensure_ascii=False) + "\n")
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).chmod(0o644)
            Path(draft.name).replace(file)
        except BaseException:
            Path(draft.name).unlink()
            raise
