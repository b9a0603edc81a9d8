"""What the index says about a file's content, read once and in pieces, however large it is."""

import hashlib
import mimetypes
import os
import stat
from dataclasses import dataclass
from pathlib import Path

PIECE = 256 * 1024
SNIFFED = 8 * 1024

# The beginnings of formats that are often named wrongly, or not at all.
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"#!", "text/x-script"),
)
# The standard library's table, without the one of this machine: the same index everywhere.
_NAMES = mimetypes.MimeTypes(filenames=())
for _type, _extension in (
    ("application/toml", ".toml"),
    ("application/yaml", ".yaml"),
    ("application/yaml", ".yml"),
    ("text/markdown", ".md"),
    ("text/x-protobuf", ".proto"),
    ("text/x-python", ".pyi"),
    ("text/x-rst", ".rst"),
    ("text/x-sql", ".sql"),
):
    _NAMES.add_type(_type, _extension)


@dataclass(frozen=True)
class Content:
    """One file's content in figures; the outcome of its task."""

    sha256: str
    bytes: int
    lines: int
    """Newline bytes, in any file."""
    words: int
    """Runs of bytes between white space."""
    type: str
    """A media type, by the first bytes, else by the name, else by whether it looks like text."""


def describe(path: Path) -> Content:
    """Read a regular file to its end; OSError if that cannot be done."""
    # Path.open takes no opener.
    with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError(f"{path} is no regular file any more")
        digest = hashlib.sha256()
        size = lines = words = 0
        in_word = False
        beginning = b""
        while piece := file.read(PIECE):
            digest.update(piece)
            size += len(piece)
            lines += piece.count(b"\n")
            words += len(piece.split())
            # A word that goes on from the piece before was counted there.
            words -= in_word and not piece[:1].isspace()
            in_word = not piece[-1:].isspace()
            if len(beginning) < SNIFFED:
                beginning += piece[: SNIFFED - len(beginning)]
    return Content(digest.hexdigest(), size, lines, words, media_type(path.name, beginning))


def _open_without_waiting(path: str, flags: int) -> int:
    """A named pipe that took the file's place must not hold the worker for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def media_type(name: str, beginning: bytes) -> str:
    """The type of a file with this name and these first bytes."""
    for magic, found in _MAGIC:
        if beginning.startswith(magic):
            return found
    named = _NAMES.guess_type(f"file:{name}")[0]
    text = looks_like_text(beginning)
    # A picture's name on a text, or a text's on bytes: the content knows better.
    if named and text == (named.startswith("text/") or named in _TEXTS or named.endswith("+xml")):
        return named
    if not beginning:
        return named or "application/x-empty"
    return "text/plain" if text else "application/octet-stream"


_TEXTS = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/toml",
        "application/x-sh",
        "application/xml",
        "application/yaml",
    }
)


def looks_like_text(beginning: bytes) -> bool:
    """Whether the first bytes are UTF-8 without NUL; a character cut at the end does not matter."""
    if b"\x00" in beginning:
        return False
    try:
        beginning.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and len(beginning) == SNIFFED
    return True
