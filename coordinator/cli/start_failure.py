"""The last line of a start that fails: what happened and what to do, for people or for machines.
A daemon that has served and has to end says so in the same way.

Needs the standard library alone, so that it can tell why nothing else could be imported.
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
    """Write to standard error why the daemon does not start, or go on: one JSON line like those of
    its log, or one line a problem where logging.format is "console" or a terminal reads along.
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
