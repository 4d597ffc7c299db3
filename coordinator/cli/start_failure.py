"""Writes the last line of a daemon that cannot start, or that must stop while it serves. The line
has the problem and the remedy, for people or for programs.

This module imports only the standard library, so that it can report a failed import.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

EVENTS: Final = ("start_failed", "cannot_go_on")


def report_start_failure(
    problems: Sequence[str], form: str = "auto", *, was_started: bool = False
) -> None:
    """Write to standard error why the daemon cannot start or, with ``was_started``, continue.

    ``form`` is the setting logging.format. The output is one line per problem if ``form`` is
    "console", or if ``form`` is "auto" and standard error is a terminal. Otherwise, the output is
    one JSON line, as in the log.
    """
    if form == "console" or (form == "auto" and sys.stderr.isatty()):
        sys.stderr.write("".join(f"groupkeeper: {problem}\n" for problem in problems))
        return
    line = {
        "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "level": "critical",
        "event": EVENTS[was_started],
        "reason": "; ".join(problems),
        "problems": list(problems),
        "logger": "groupkeeper",
    }
    sys.stderr.write(json.dumps(line) + "\n")
