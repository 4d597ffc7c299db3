"""Reads the options of the pipeline's commands: a moment, a file of settings, a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from groupkeeper.coordinator.cli.failing import USAGE, fail
from groupkeeper.coordinator.cli.pipeline.plan_view import moment

TLS_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
"""The settings that name a file for TLS."""

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def now_ms() -> int:
    """Return the current time, in milliseconds since the epoch."""
    return int(datetime.now(UTC).timestamp() * 1000)


def parse_moment(text: str, now: int) -> int:
    """Parse a moment: ISO 8601, or a duration before ``now`` such as ``15m``. Return milliseconds
    since the epoch. Exit if the text has neither form, or if the moment is in the future.
    """
    ago = re.fullmatch(r"(\d+)([smhd])(?: ago)?", text.strip())
    if ago:
        return _since_1970(text, now - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        fail(f"--as-of {text}: use 2026-11-21T20:15:00Z, or 15m for 15 minutes ago", USAGE)
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    found = int(at.timestamp() * 1000)
    if found > now:
        fail(f"--as-of {text}: {moment(found)} is in the future", USAGE)
    return _since_1970(text, found)


def _since_1970(text: str, at_ms: int) -> int:
    if at_ms < 0:
        fail(f"--as-of {text}: is before 1970, and no log is that old", USAGE)
    return at_ms


def read_properties(path: Path | None) -> dict[str, str]:
    """Return the settings in a file of ``name=value`` lines; none without a file. Kafka's own tools
    have this format (--command-config). Exit if the file cannot be read.
    """
    if path is None:
        return {}
    found = {}
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        fail(f"{path}: {error.strerror or error}", USAGE)
    except UnicodeDecodeError:
        fail(f"{path}: is not a text file; is it the right one?", USAGE)
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, is_there, value = text.partition("=")
            if not is_there:
                fail(f"{path}, line {number}: not of the form name=value", USAGE)
            found[name.strip()] = value.strip()
    return found


def read_known(path: Path | None, known: Sequence[str]) -> dict[str, str]:
    """Return the settings in a file of ``name=value`` lines. Exit if a name is not in ``known``, or
    if the value of one of ``TLS_FILES`` is no file."""
    found = read_properties(path)
    for name, value in found.items():
        if name not in known:
            fail(f"{path}: unknown setting {name}; known are {', '.join(known)}", USAGE)
        if name in TLS_FILES and not Path(value).is_file():
            fail(f"{path}: {name}={value}: no such file", USAGE)
    return found


def file_name(text: str) -> str:
    """Return a text that can be part of a file name. Each run of unsafe characters becomes one "_",
    and the text is cut to 80 characters.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:80]
