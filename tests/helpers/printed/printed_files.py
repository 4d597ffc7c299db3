"""The lists of the rooms and of their files, from the docstrings of the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TOPS = ("coordinator", "protocol", "storage", "pipeline", "clients")

_END_OF_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\"])")
_PAGE = re.compile(r"docs/([\w/.-]+\.md)((?:#[\w-]+)?)")


def rooms() -> str:
    """Return every room with the first paragraph of its docstring, as a Markdown table."""
    rows = [(f"[`{_path(room)}/`](reference/files.md#{_anchor(room)})", room) for room in folders()]
    return _table("room", ((name, _paragraph(room / "__init__.py")) for name, room in rows))


def files() -> str:
    """Return every file with the first sentence of its docstring: a Markdown table for
    each room.
    """
    parts = []
    for room in folders():
        rows = [(f"`{path.name}`", _sentence(path)) for path in sorted(room.glob("*.py"))]
        head = f'<a id="{_anchor(room)}"></a>\n\n## `{_path(room)}/`'
        parts.append(f"{head}\n\n{_table('file', rows, above='../')}")
    return "\n\n".join(parts)


def folders() -> list[Path]:
    """Return every folder of the sources: a room before the rooms inside it."""
    return [room.parent for top in TOPS for room in sorted((ROOT / top).rglob("__init__.py"))]


def _table(head: str, rows: Iterable[tuple[str, str]], above: str = "") -> str:
    lines = [f"| {head} | what it has |", "| --- | --- |"]
    for name, text in rows:
        linked = _PAGE.sub(rf"[\1]({above}\1\2)", text.replace("``", "`").replace("|", "\\|"))
        lines.append(f"| {name} | {linked} |")
    return "\n".join(lines)


def _sentence(path: Path) -> str:
    return _END_OF_SENTENCE.split(_paragraph(path))[0]


def _paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{path} has no docstring"
    return " ".join(text.split("\n\n")[0].split())


def _path(room: Path) -> str:
    return room.relative_to(ROOT).as_posix()


def _anchor(room: Path) -> str:
    return _path(room).replace("/", "-")
