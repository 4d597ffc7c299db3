"""The last line of a failed start: the problem and the remedy, for people or for machines. A daemon
that had to stop while serving uses it too.

It needs only the standard library, so that it can report a failed import of anything else.
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
    """Write to standard error why the daemon cannot start or continue.

    The output is one JSON line, as in the log. If ``form`` is "console", or if it is "auto" and
    standard error is a terminal, the output is one line per problem.
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
