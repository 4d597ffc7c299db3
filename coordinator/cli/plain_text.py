"""Text that others chose, such as ids, names, hosts and reasons, made fit to be printed.

Kafka's protocol lets a group id be any text: with a line break it takes a table apart, with an
escape sequence it colours, moves or retitles the terminal of whoever looks at it. JSON needs none
of this, its encoding has its own escapes.
"""

from __future__ import annotations

import io
import sys
import unicodedata
from typing import Final

_UNPRINTED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (which turns the direction of writing), surrogates, line and
paragraph separators."""


def plain(text: str) -> str:
    r"""Return it on one line: what acts instead of showing stands as ``\n``, ``\x1b``, ``\u202e``.

    A backslash stays as it is: this is for reading, and ``-o json`` for taking apart again.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _acts(char) else char for char in text)


def plain_lines(text: str) -> str:
    """Return it with its line breaks, which are ours, and each line plain."""
    return "\n".join(map(plain, text.split("\n")))


def accept_any_text() -> None:
    r"""Let stdout escape what its encoding lacks (``\xfc`` where that is ASCII) instead of failing.

    Python does so for stderr by itself.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _acts(char: str) -> bool:
    return unicodedata.category(char) in _UNPRINTED


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
