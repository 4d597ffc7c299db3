"""Helps to start other Python processes that work for this one and end with it."""

from __future__ import annotations

import os
import signal
import sys


def child_environment() -> dict[str, str]:
    """Return an environment in which a new Python process finds the same modules as this one.

    The current directory is left out: a file in it must not replace a module.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


def ignore_stop_signals() -> None:
    """Ignore the signals that a terminal or a supervisor sends to all processes. The child ends
    when its stdin is closed.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
