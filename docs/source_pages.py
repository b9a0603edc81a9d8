"""An MkDocs hook: links from pages to the repository's files work on the built site too.

On a code host `../server/…/engine.py#L82` opens the file. A site has no such file, so each linked
one becomes a page of its own with numbered lines, and the links lead there.
"""

import html
import re
from pathlib import Path, PurePosixPath
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>(?:\.\./)+[^)#\s]*)(?:#L(?P<line>\d+))?\)")

_linked: set[str] = set()


def on_pre_build(**_: Any) -> None:
    """Forget what an earlier build of this process has linked."""
    _linked.clear()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave the docs folder into links to source pages."""
    folder = PurePosixPath("docs", page.file.src_uri).parent
    up = "../" * page.file.url.count("/")

    def link(match: re.Match[str]) -> str:
        target = _normal(folder / match["path"])
        if target is None or target.parts[:1] == ("docs",):
            return match[0]
        text = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(match["text"]))
        if not (ROOT / target).is_file():
            return f"<span title='{target}'>{text}</span>"
        _linked.add(str(target))
        anchor = f"#L-{match['line']}" if match["line"] else ""
        return f"<a href='{up}source/{target}.html{anchor}'>{text}</a>"

    return LINK.sub(link, markdown)


def _normal(path: PurePosixPath) -> PurePosixPath | None:
    """The path with its `..` resolved; None if it leaves the repository."""
    parts: list[str] = []
    for part in path.parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            return None
    return PurePosixPath(*parts)


def on_post_build(config: Any, **_: Any) -> None:
    """Write a page for each file that was linked."""
    for name in sorted(_linked):
        try:
            lexer = get_lexer_for_filename(name)
        except ClassNotFound:
            lexer = TextLexer()
        look = HtmlFormatter(
            full=True, title=name, linenos="inline", lineanchors="L", anchorlinenos=True
        )
        page = Path(config["site_dir"], "source", f"{name}.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(highlight((ROOT / name).read_text("utf-8"), lexer, look), "utf-8")
