"""`make run`'s job on real files: what it indexes, what it leaves out, and how it ends."""

import base64
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples/file_index/main.py"

pytestmark = pytest.mark.timeout(120)


def run(out: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, "--once", "--out", out, *arguments]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment, check=False
    )


def read_index(out: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = {line["path"]: line for line in lines}
    assert len(found) == len(lines)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of many kinds, twelve of them regular."""
    folder = tmp_path / "files"
    (folder / "deep/er").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    contents = {
        "a.py": b"print('one two')\n",
        "deep/b.json": b'{"a": 1}',
        "deep/er/c.bin": random.Random(1).randbytes(3_000_001),
        "deep/er/words.txt": b"one  two\tthree\nfour\x0bfive" * 40_000,
        ".hidden/d.txt": b"hidden\n",
        "empty": b"",
        "no-newline": "schön".encode(),
        "latin1.txt": "schön".encode("latin1"),
        "picture.txt": b"\x89PNG\r\n\x1a\n....",
        "with space\nand newline": b"x\n\n\n",
        "back\\slash": b"\\",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    Path(os.fsdecode(os.fsencode(folder) + b"/not-\xff-utf8")).write_bytes(b"1\n2\n")
    return folder


def test_index_of_a_folder(tmp_path: Path, folder: Path) -> None:
    (folder / "link.py").symlink_to("a.py")
    (folder / "round").symlink_to(".")
    (folder / "dangling").symlink_to("nothing")
    os.mkfifo(folder / "pipe")
    # The index of an earlier run, in the folder itself, is no file to index.
    out = folder / "index.jsonl"
    out.write_text("old\n")
    done = run(out, "--folder", folder)
    assert done.returncode == 0, done.stderr + done.stdout
    index = read_index(out)
    assert "13 of 13 files SUCCEEDED" in done.stdout
    for skipped in ("round", "dangling", "pipe"):
        assert f"left out: {skipped}" in done.stdout

    raw = index.pop("not-\\xff-utf8")
    assert base64.b64decode(raw["path_base64"]) == b"not-\xff-utf8"
    assert (raw["lines"], raw["bytes"]) == (2, 4)
    assert set(index) == {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path != out and b"\xff" not in os.fsencode(path)
    }
    for path, line in index.items():
        content = (folder / path).read_bytes()
        assert line["sha256"] == hashlib.sha256(content).hexdigest(), path
        assert line["bytes"] == len(content), path
        assert line["lines"] == content.count(b"\n"), path
        assert line["words"] == len(content.split()), path
    assert {path: line["type"] for path, line in index.items()} == {
        "a.py": "text/x-python",
        "link.py": "text/x-python",
        "deep/b.json": "application/json",
        "deep/er/c.bin": "application/octet-stream",
        "deep/er/words.txt": "text/plain",
        ".hidden/d.txt": "text/plain",
        "empty": "application/x-empty",
        "no-newline": "text/plain",
        "latin1.txt": "application/octet-stream",
        "picture.txt": "image/png",
        "with space\nand newline": "text/plain",
        "back\\slash": "text/plain",
    }
    # Every tenth stumbles once, from the first on, and no other.
    attempts = [line["attempts"] for line in [*index.values(), raw]]
    assert sorted(attempts) == [1] * 11 + [2] * 2


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, folder: Path) -> None:
    # A regular file, by its looks, whose every read fails; for root too.
    (folder / "unreadable").symlink_to("/proc/self/mem")
    out = tmp_path / "index.jsonl"
    done = run(out, "--folder", folder)
    assert done.returncode == 1
    assert "FAILED unreadable: FAILED: OSError" in done.stdout
    assert "12 of 13 files SUCCEEDED" in done.stdout
    assert len(read_index(out)) == 12


def test_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = run(tmp_path / "index.jsonl", "--folder", tmp_path / "none")
    assert done.returncode == 0
    assert (tmp_path / "index.jsonl").read_text() == ""
    assert "no files" in done.stdout


def test_default_folder_is_what_git_tracks(tmp_path: Path) -> None:
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True)
    tracked = {name.decode() for name in names.stdout.split(b"\0") if name}
    done = run(tmp_path / "index.jsonl")
    assert done.returncode == 0, done.stderr + done.stdout
    index = read_index(tmp_path / "index.jsonl")
    # A file that was removed since has no task; others may come and go while this runs.
    assert index.keys() <= tracked
    assert {path for path in tracked if (ROOT / path).is_file()} <= index.keys()


def test_bad_arguments(tmp_path: Path) -> None:
    assert run(tmp_path / "x", "--folder", tmp_path / "none").returncode == 2
    done = run(tmp_path / "none/x")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
