"""Makes text from clients, such as ids, names, hosts and reasons, safe to print.

Kafka's protocol allows any text as a group id. A line break in an id would break a table, and an
escape sequence could change the colours or the title of the reader's terminal. JSON has its own
escapes and does not need this.
"""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from typing import Final

import typer

_UNPRINTED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""The Unicode categories of characters that are escaped: control, format (which can change the
direction of writing), surrogates, line and paragraph separators.
"""


def plain(text: str) -> str:
    r"""Return the text on one line, with control characters as ``\n``, ``\x1b``, ``\u202e``.

    A backslash is not escaped, so the result is for people and cannot be parsed exactly. Programs
    use ``-o json``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _acts(char) else char for char in text)


def plain_lines(text: str) -> str:
    """Return text of several lines that is safe to print.

    Line breaks stay. Other control characters are escaped as in ``plain``.
    """
    return "\n".join(map(plain, text.split("\n")))


def styled(text: str, colour: str) -> str:
    """Return the text with codes for the colour. Return the plain text if the output is no terminal
    with colours, or if NO_COLOR is set (https://no-color.org).
    """
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=colour)


def accept_any_text() -> None:
    r"""Make standard output write characters that its encoding does not have as escapes (``\xfc``
    for ASCII). Otherwise, such a character would raise an error. For standard error, escapes are
    Python's default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _acts(char: str) -> bool:
    return unicodedata.category(char) in _UNPRINTED


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
