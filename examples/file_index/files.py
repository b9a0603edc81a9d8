"""Which files to index: what git tracks, or all regular files of a folder."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# Where the repository was unpacked without git: what it makes itself is not part of it.
_MADE = frozenset({"__pycache__", "build", "dist", "node_modules", "site"})


@dataclass
class Listing:
    """The files of a folder, as paths relative to it, sorted; and what is none."""

    folder: Path
    paths: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Path → why it has no task."""


def list_files(folder: Path | None, leave_out: Path) -> Listing:
    """The files to index; the index itself, `leave_out`, is none of them.

    Without a folder: this repository, as far as git tracks it. A folder that is the top of a git
    checkout is read in the same way; any other with everything below it.
    """
    listing = Listing((folder or REPOSITORY).resolve())
    tracked = _tracked(listing.folder) if (listing.folder / ".git").exists() else None
    found = _walk(listing, whole=folder is not None) if tracked is None else iter(tracked)
    for path in sorted(found):
        reason = _why_not(listing.folder / path, leave_out)
        if reason:
            listing.skipped[path] = reason
        else:
            listing.paths.append(path)
    return listing


def _tracked(folder: Path) -> list[str] | None:
    """What git tracks; None where git cannot say, such as in another user's checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, "ls-files", "-z"], capture_output=True, check=False
        )
    except OSError:
        return None
    if done.returncode != 0:
        return None
    return list({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _walk(listing: Listing, *, whole: bool) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        path = os.path.relpath(error.filename, listing.folder)
        listing.skipped[path] = f"the folder cannot be read: {error.strerror}"

    for base, folders, names in os.walk(listing.folder, onerror=unreadable):
        if not whole:
            folders[:] = [name for name in folders if name not in _MADE and name[:1] != "."]
        # Links to folders come as folders; following them could go round in circles.
        links = [name for name in folders if Path(base, name).is_symlink()]
        for name in [*names, *links]:
            yield os.path.relpath(Path(base, name), listing.folder)


def _why_not(path: Path, leave_out: Path) -> str:
    """Why a path has no task; nothing for a file, or a link to one."""
    try:
        if path.is_file():
            return "the index itself" if leave_out.exists() and path.samefile(leave_out) else ""
        if path.is_symlink():
            return "a link to a folder" if path.is_dir() else "a link to nothing"
        return "no regular file" if path.exists() else "not there"
    except OSError as error:
        return error.strerror or str(error)
