"""The work: one task reads one file and returns what the index says about it."""

from dataclasses import dataclass
from pathlib import Path

from content import Content, describe

from mainspring_worker import Context, Fail, Worker


@dataclass(frozen=True)
class FileToIndex:
    """The payload of a task."""

    folder: str
    path: str
    """Relative to the folder; bytes that are no UTF-8 are lone surrogates, as Python reads them."""
    stumble: bool = False
    """Fail the first attempt on purpose, to show a retry."""


class IndexFile(Worker):
    """Computes hash, type, lines and words of a file."""

    task_type = "index-file"

    def handle(self, context: Context, file: FileToIndex) -> Content:
        """Read the file in a thread; what is returned becomes the task's outcome."""
        if file.stumble and context.attempt == 1:
            raise ConnectionError("the first attempt fails on purpose; the second will not")
        try:
            return describe(Path(file.folder, file.path))
        except (FileNotFoundError, NotADirectoryError):
            raise Fail("the file is gone") from None
        except PermissionError:
            raise Fail("the file may not be read by this user") from None
