"""Makes the HTML of a report: one file that contains its style, script, charts and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

_FILES: Final = resources.files(__package__)
STYLE: Final = _FILES.joinpath("page.css").read_text()
SCRIPT: Final = _FILES.joinpath("page.js").read_text()

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def page(title: str, says: str, parts: Iterable[str], pages: Mapping[str, str] = _NONE) -> str:
    """Return a whole HTML page. ``title`` and ``says`` (the line below the title) are text, and
    ``parts`` are HTML.

    ``pages`` has the titles of the pages to link to, by file.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f'{_nav(title, pages)}<h1>{escape(title)}</h1><p class="faint">{escape(says)}</p>'
        f"{''.join(parts)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _nav(title: str, pages: Mapping[str, str]) -> str:
    links = (
        f"<b>{escape(name)}</b>" if name == title else link(file, name)
        for file, name in pages.items()
    )
    return f"<nav>{''.join(links)}</nav>" if pages else ""


def link(address: str, text: str) -> str:
    """Return a link to a page of the same folder, or to an anchor in it."""
    return f'<a href="{escape(address)}">{escape(text)}</a>'


def linked_card(file: str, title: str, question: str, found: str) -> str:
    """Return a card about another page: its linked title, its question, and its answer, which is
    HTML.
    """
    return (
        f'<section><h2>{link(file, title)}</h2><p class="faint">{escape(question)}</p>{found}'
        "</section>"
    )


def section(title: str, says: str, content: str) -> str:
    """Return a card with a heading, a line of text (``says``), and ``content``, which is HTML."""
    return (
        f'<section><h2>{escape(title)}</h2><p class="faint">{_prose(says)}</p>{content}</section>'
    )


def card(title: str, name: str, facts: Mapping[str, str], *, evidence: str, link: str) -> str:
    """Return a card for one incident: its facts, a link (HTML) to the page with more details, and
    an SQL query that returns its rows (``evidence``).
    """
    rows = "".join(
        f"<dt>{escape(key)}</dt><dd>{_prose(value)}</dd>" for key, value in facts.items() if value
    )
    return (
        f'<article class="card"><h3>{escape(title)}</h3><p><b>{escape(name)}</b></p><dl>{rows}</dl>'
        f'<p class="faint">more: {link}</p>'
        f"<details><summary>its rows, as SQL</summary><code>{escape(evidence)}</code></details>"
        "</article>"
    )


def warning(text: str) -> str:
    """Return a text as a card: a warning that a reader must see first."""
    return f'<section class="warn"><p>{_prose(text)}</p></section>'


def note(text: str) -> str:
    """Return a text as a line. It says how to read the page."""
    return f"<p>{_prose(text)}</p>"


def _prose(text: str) -> str:
    """Return a text as HTML. Text between backticks becomes code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


_CODE: Final = re.compile("`([^`]+)`")


def tiles(figures: Mapping[str, object]) -> str:
    """Return a few large numbers as tiles, each with its name."""
    each = (
        f'<div class="tile"><b>{escape(_cell(value))}</b><span>{escape(name)}</span></div>'
        for name, value in figures.items()
    )
    return f'<div class="tiles">{"".join(each)}</div>'


def summary(figures: Mapping[str, object]) -> str:
    """Return the numbers of ``tiles`` in one line."""
    each = (f"{escape(name)} <b>{escape(_cell(value))}</b>" for name, value in figures.items())
    return f"<p>{' · '.join(each)}</p>"


SHOWN: Final = 12
"""The number of rows of a table that are visible without the script. A telephone shows three."""


def table(
    rows: Sequence[Mapping[str, Any]],
    empty: str,
    *,
    total: int = 0,
    whole: str = "",
    links: Mapping[str, str] = _NONE,
) -> str:
    """Return a table as HTML. ``rows`` are dicts with the same keys. Without rows, return the text
    ``empty``.

    The page's script adds a search, sorting, and the rows after the first SHOWN. If there are fewer
    rows than ``total``, the last line names ``whole``, the file with all rows. ``links`` maps
    columns to the page to which their values link.
    """
    if not rows:
        return f'<p class="faint">{escape(empty)}</p>'
    names = list(rows[0])
    kinds = {name: _kind(name, [row[name] for row in rows]) for name in names}
    head = "".join(f'<th class="{kinds[name]}">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(_td(name, kinds[name], row[name], links) for name in names) + "</tr>"
        for row in rows[:SHOWN]
    )
    content = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    data = {
        "names": names,
        "kinds": list(kinds.values()),
        "links": dict(links),
        "rows": [[row[name] for name in names] for row in rows],
    }
    rest = f"{len(rows):,} of {total:,} rows; {whole} has all."
    note = f'<p class="faint">{escape(rest)}</p>' if total > len(rows) else ""
    return f'<div class="scroll"><table>{content}</table>{embedded(data)}</div>{note}'


def _td(name: str, kind: str, value: object, links: Mapping[str, str]) -> str:
    text = escape(_cell(value))
    if name in links and value:
        address = f"{links[name]}#{quote(str(value), safe='')}"
        text = f'<a href="{escape(address)}">{text}</a>'
    return f'<td class="{kind}" data-name="{escape(name)}">{text}</td>'


def embedded(data: object, name: str = "") -> str:
    """Return data for the page's script, as a JSON element in HTML. ``name`` is the class of the
    element; without it, the class is ``rows``.
    """
    text = json.dumps(data, separators=(",", ":"), default=str)
    text = text.replace("<", "\\u003c").replace("&", "\\u0026")
    return f'<script type="application/json" class="{name or "rows"}">{text}</script>'


LONG_WORD: Final = 40
"""The largest number of characters of a word that fits into a column. Longer words are broken."""


def _kind(name: str, values: Sequence[object]) -> str:
    if name in ("time (UTC)", "day"):
        return "t"
    if all(value is None or isinstance(value, int | float) for value in values):
        return "n"
    words = (word for value in values for word in _cell(value).split())
    return "long" if any(len(word) > LONG_WORD for word in words) else ""


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
