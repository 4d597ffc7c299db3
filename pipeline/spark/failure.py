"""Describes failures of Spark in one line, because Spark's own messages are a page long (pure)."""

from __future__ import annotations

import re
from typing import Final

_FILE: Final = re.compile(r"FAILED_READ_FILE\S* [^\n]*? reading file (?:file:/*(?=/))?(\S+?)\.?\s")
_ABSENT: Final = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:/*(?=/))?(\S+?)\.?\s")
_NO_MODULE: Final = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_CAUSE: Final = re.compile(r"^(?:Caused by)?: (.+)$", re.MULTILINE)
_LONGEST: Final = 300

_NO_JAVA: Final = re.compile(
    r"JAVA_HOME is not set|bin/java: No such file|java: (?:command )?not f"
)
_OLD_JAVA: Final = "UnsupportedClassVersionError"
_EXCEPTION: Final = re.compile(r"^Exception in thread \S+ [\w.$]+: (.*\S)$", re.MULTILINE)
_NOTHING_NEW: Final = re.compile(r"WARN|WARNING|^Using Spark's default|^\s+at |^Setting default")


def damaged_file(error: BaseException) -> str | None:
    """Return the path of the file that Spark could not read. Return None if the error has another
    cause.
    """
    found = _FILE.search(f"{error}\n")
    return None if found is None else found[1]


def why(error: BaseException) -> str:
    """Return one line with the cause of an error of Spark, and the remedy if one is known."""
    text = f"{error}\n"
    if damaged := _FILE.search(text):
        return (
            f"{damaged[1]} cannot be read: it is cut off, damaged or missing. Replace it with a "
            "good copy. If there is none, move it away; its events are then reported as missing"
        )
    if absent := _ABSENT.search(text):
        return f"{absent[1]} does not exist"
    if lacking := _NO_MODULE.search(text):
        return (
            f"the Python of Spark's workers has no {lacking[1]}: set PYSPARK_PYTHON to one that "
            "has the wheel with its extra, at the same path on each of their machines"
        )
    lines: list[str] = [type(error).__name__, *text.strip().splitlines()[:1], *_CAUSE.findall(text)]
    return lines[-1][:_LONGEST]


def why_not_started(said: str) -> str:
    """Return in one line why the JVM did not start, from the output of Java and Spark's script."""
    if _NO_JAVA.search(said):
        return "Spark needs Java 17, and finds no Java in JAVA_HOME or, if that is not set, in PATH"
    if _OLD_JAVA in said:
        return "Spark needs Java 17, and the installed one is older"
    if raised := _EXCEPTION.search(said):
        return f"Spark cannot start: {raised[1]}"
    lines = [line.strip() for line in said.splitlines() if not _NOTHING_NEW.search(line)]
    first = next((line for line in lines if line), "Java ended without a message")
    return f"Spark cannot start: {first.removeprefix('Error: ')}"
