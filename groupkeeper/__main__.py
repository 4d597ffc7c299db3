"""The console script, and `python -m groupkeeper`."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys


def end_cleanly_while_importing() -> None:
    """Exit with status 0 on SIGTERM or SIGINT during the imports of the daemon. There is nothing to
    drain before the daemon installs its own handlers.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


def open_missing_streams() -> None:
    """Open ``/dev/null`` as each standard stream that is closed.

    A program may start us with closed streams. Then sockets and files would get the numbers 0 to 2,
    and libuv aborts when it closes such a descriptor. And a command like ``health`` would fail,
    because it has nothing to write to.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def import_less() -> None:
    """Make the start of a daemon faster, because after a crash all groups wait for it.

    Imports create no garbage, so the garbage collector is off until ``calm_collector``. structlog
    and typer import rich if they can, for output that no daemon prints. kio imports hypothesis if
    it can, for tests. pydantic looks for plugins in all installed distributions. With a hundred of
    them, this takes as long as all our imports.
    """
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for name in ("rich", "hypothesis"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # "cannot be imported"


def say_what_is_missing(*, is_daemon: bool) -> int:
    """Report which packages the command line lacks. Returns the exit status."""
    from groupkeeper.coordinator.cli.extras import lacking
    from groupkeeper.coordinator.cli.start_failure import report_start_failure

    problem = lacking("pipeline" if sys.argv[1:2] == ["pipeline"] else "server")
    assert problem is not None, "typer is in both"
    form = os.environ.get("GROUPKEEPER_LOGGING__FORMAT", "auto") if is_daemon else "console"
    report_start_failure([problem], form)
    return 2


def main() -> None:
    """Run the command line."""
    is_daemon = sys.argv[1:2] == ["serve"]
    open_missing_streams()
    if is_daemon:
        end_cleanly_while_importing()
        import_less()
    if importlib.util.find_spec("typer") is None:
        raise SystemExit(say_what_is_missing(is_daemon=is_daemon))
    # imported here, so that a signal ends these imports too
    from groupkeeper.coordinator.cli.plain_text import accept_any_text

    accept_any_text()
    if is_daemon:
        from groupkeeper.coordinator.cli.daemon import app
    else:  # the daemon continues if nobody reads its log
        from groupkeeper.coordinator.cli.closed_pipe import end_when_nobody_reads
        from groupkeeper.coordinator.cli.main import app

        end_when_nobody_reads()
    try:
        app(prog_name="groupkeeper")
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
