"""The console script, and `python -m groupkeeper`."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys


def end_cleanly_while_importing() -> None:
    """Until the daemon has handlers of its own there is nothing to drain: a supervisor that changes
    its mind in the first half second is to see a clean end.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


def import_less() -> None:
    """Save a fifth of what the imports of a daemon cost: groups wait for them after a crash.

    Nothing of what is imported is garbage; ``calm_collector`` lets the collector look again. And
    structlog and typer import rich where they can, to draw what no daemon prints.
    """
    gc.disable()
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # "cannot be imported"


def main() -> None:
    """Run the command line."""
    is_daemon = sys.argv[1:2] == ["serve"]
    if is_daemon:
        end_cleanly_while_importing()
        import_less()
    # late, for a signal is to end these imports as well
    from groupkeeper.coordinator.cli.extras import lacking

    if importlib.util.find_spec("typer") is None:
        sys.stderr.write(f"groupkeeper: {lacking('server')}\n")
        raise SystemExit(1)
    from groupkeeper.coordinator.cli.plain_text import accept_any_text

    accept_any_text()
    if is_daemon:
        from groupkeeper.coordinator.cli.daemon import app
    else:  # the daemon serves on, whether or not its log is read
        from groupkeeper.coordinator.cli.closed_pipe import end_when_nobody_reads
        from groupkeeper.coordinator.cli.main import app

        end_when_nobody_reads()
    try:
        app(prog_name="groupkeeper")
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
