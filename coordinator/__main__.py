"""The console script. First checks that the import names it is about to use are ours.

``coordinator``, ``protocol``, ``storage`` and ``pipeline`` are words that any other distribution
may use too; with one of them shadowed, the first import would fail in a way that names neither
culprit nor cure.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path

IMPORT_NAMES = ("coordinator", "protocol", "storage", "pipeline")
"""The packages of this distribution (pyproject.toml, wheel)."""


def foreign_packages(home: Path) -> list[str]:
    """Return one line for each import name that does not lead to the directory of ours."""
    problems = []
    for name in IMPORT_NAMES:
        spec = importlib.util.find_spec(name)
        expected = home / name / "__init__.py"
        origin = spec.origin if spec is not None else None
        if origin is None:
            problems.append(f"the package {name!r} of groupkeeper is missing from {home}")
        elif Path(origin).resolve() != expected.resolve():
            problems.append(f"the package {name!r} is taken from {origin}, not from {home}")
    return problems


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
    problems = foreign_packages(Path(__file__).resolve().parent.parent)
    if problems:
        problems.append(
            "another distribution or a file in the working directory owns that name; "
            "install groupkeeper into an environment of its own"
        )
        # our own package is what runs here, so this is ours too
        from coordinator.start_failure import report_start_failure

        report_start_failure(problems, "auto" if is_daemon else "console")
        raise SystemExit(1)
    # late, for these imports are what was just checked
    from coordinator.extras import lacking

    if importlib.util.find_spec("typer") is None:
        sys.stderr.write(f"groupkeeper: {lacking('server')}\n")
        raise SystemExit(1)
    from coordinator.cli.plain_text import accept_any_text

    accept_any_text()
    if is_daemon:
        from coordinator.cli.daemon import app
    else:  # the daemon serves on, whether or not its log is read
        from coordinator.cli.closed_pipe import end_when_nobody_reads
        from coordinator.cli.main import app

        end_when_nobody_reads()
    try:
        app(prog_name="groupkeeper")
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
