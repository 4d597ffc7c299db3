"""Why Spark failed, in one line: it tells a page of its own inside for each (pure)."""

from __future__ import annotations

import re
from typing import Final

_FILE: Final = re.compile(r"FAILED_READ_FILE\S* [^\n]*? reading file (?:file:/*(?=/))?(\S+?)\.?\s")
_ABSENT: Final = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:/*(?=/))?(\S+?)\.?\s")
_CAUSE: Final = re.compile(r"^(?:Caused by)?: (.+)$", re.MULTILINE)
_LONGEST: Final = 300


def damaged_file(error: BaseException) -> str | None:
    """Return the path of the file that could not be read, where that was why."""
    found = _FILE.search(f"{error}\n")
    return None if found is None else found[1]


def why(error: BaseException) -> str:
    """Say what happened, and what to do where that is known. For one of ``SPARK_ERRORS``."""
    text = f"{error}\n"
    if damaged := _FILE.search(text):
        return (
            f"{damaged[1]} cannot be read: it is cut off, damaged or gone. Put a good copy in its "
            "place; where there is none, move it away, and its events are told as missing"
        )
    if absent := _ABSENT.search(text):
        return f"{absent[1]} does not exist"
    told: list[str] = [type(error).__name__, *text.strip().splitlines()[:1], *_CAUSE.findall(text)]
    return told[-1][:_LONGEST]
