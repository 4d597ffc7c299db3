"""A report as one HTML file with its style, charts and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

_STYLE: Final = """
:root { color-scheme: light dark;
  --page: #f7f8fa; --card: #ffffff; --text: #1b1f24; --faint: #5c6670; --rule: #dfe3e8;
  --warn: #8a4b00;
  --warn-page: #fff4e0;
  --s1: #2563eb; --s2: #c2570c; --s3: #047857; --s4: #b91c1c; --s5: #7c3aed; --s6: #0e7490;
  --s7: #be185d; --s8: #4d7c0f; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0f1216; --card: #181c22; --text: #e6e9ed; --faint: #9aa5b1; --rule: #2c333b;
  --warn: #ffc46b;
  --warn-page: #33260f;
  --s1: #6ea8fe; --s2: #fb923c; --s3: #34d399; --s4: #f87171; --s5: #b794f6; --s6: #22d3ee;
  --s7: #f472b6; --s8: #a3e635; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0 0 2px; }
.faint { color: var(--faint); margin: 0 0 12px; font-size: 14px; }
p { overflow-wrap: anywhere; }
code { font: 0.93em ui-monospace, "DejaVu Sans Mono", monospace; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 16px 18px; margin: 16px 0; }
.warn { background: var(--warn-page); color: var(--warn); border-color: var(--warn); }
.warn p { margin: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px;
  margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 10px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--faint); font-size: 13px; }
.legend { margin: 6px 0 4px; font-size: 13px; }
.key { display: inline-block; margin-right: 16px; max-width: min(100%, 340px); overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; vertical-align: bottom; }
.swatch { display: inline-block; width: 10px;
  height: 10px; border-radius: 3px; margin-right: 6px; background: currentColor; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--faint);
  font-size: 12px; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--faint); }
svg .line path { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
svg .line circle, svg .fill { fill: currentColor; }
.s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
  .s4 { color: var(--s4); }
.s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
  .s8 { color: var(--s8); }
.narrow { display: none; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; } th { color: var(--faint); font-weight: 500; white-space: nowrap; }
tr:last-child td { border-bottom: 0; } td { overflow-wrap: break-word; min-width: 64px; }
td.long { overflow-wrap: anywhere; min-width: 280px; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { vertical-align: bottom; } th.n { white-space: normal; }
.n + :not(.n) { padding-left: 14px; }
.t { white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) { main { padding: 16px 10px 32px; } section { padding: 12px; }
  .wide { display: none; } .narrow { display: block; } h1 { font-size: 20px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 8px; }
  thead { display: none; } table, tbody, tr, td { display: block; width: 100%; }
  tr { padding: 8px 0; border-bottom: 1px solid var(--rule); } tr:last-child { border-bottom: 0; }
  td, td.n, td.long, .n + td:not(.n) { overflow-wrap: anywhere; min-width: 0; border: 0;
    padding: 1px 0;
    display: flex; gap: 10px; text-align: left; white-space: normal; }
  td::before { content: attr(data-name); color: var(--faint); flex: 0 0 116px; }
  td:empty, .n + td:not(.n):empty { display: none; } }
"""


def page(title: str, says: str, parts: Iterable[str]) -> str:
    """Return a whole HTML page. ``title`` and ``says`` are text, ``parts`` are HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="faint">{escape(says)}</p>'
        f"{''.join(parts)}</main></body></html>\n"
    )


def section(title: str, says: str, content: str) -> str:
    """Return a card with a heading; ``content`` is HTML."""
    return (
        f'<section><h2>{escape(title)}</h2><p class="faint">{_prose(says)}</p>{content}</section>'
    )


def warning(text: str) -> str:
    """Return a card for something that a reader must know first."""
    return f'<section class="warn"><p>{_prose(text)}</p></section>'


def _prose(text: str) -> str:
    """Escape a text; text between backticks becomes code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


_CODE: Final = re.compile("`([^`]+)`")


def tiles(figures: Mapping[str, object]) -> str:
    """Return a few large numbers as tiles, each with its name."""
    each = (
        f'<div class="tile"><b>{escape(_cell(value))}</b><span>{escape(name)}</span></div>'
        for name, value in figures.items()
    )
    return f'<div class="tiles">{"".join(each)}</div>'


def table(rows: Sequence[Mapping[str, Any]], empty: str, *, total: int = 0, whole: str = "") -> str:
    """Return a table of dicts with the same keys. Numbers are aligned right; a telephone shows
    cards.

    If the table has fewer rows than ``total``, it says that ``whole`` has all of them.
    """
    if not rows:
        return f'<p class="faint">{escape(empty)}</p>'
    names = list(rows[0])
    kinds = {name: _kind(name, [row[name] for row in rows]) for name in names}
    head = "".join(f'<th class="{kinds[name]}">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kinds[name]}" data-name="{escape(name)}">{escape(_cell(row[name]))}</td>'
            for name in names
        )
        + "</tr>"
        for row in rows
    )
    content = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    rest = f"{len(rows):,} of {total:,} rows; {whole} has all."
    note = f'<p class="faint">{escape(rest)}</p>' if total > len(rows) else ""
    return f'<div class="scroll"><table>{content}</table></div>{note}'


LONG_WORD: Final = 40
"""The longest word that a column has room for; longer words are broken."""


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
