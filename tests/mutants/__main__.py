"""``make mutants``: break the code on purpose, and see that a test notices.

``DRAWN=200`` draws more than the 20 of CI, ``ONLY=text`` runs those whose line holds the text,
``SEED=15`` draws others. What is no number, or none that makes sense, is refused.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tests.helpers.daemon.asked_numbers import RefusedError, whole_number
from tests.mutants.check import Plan, check
from tests.mutants.chosen_tests import chosen_tests
from tests.mutants.equivalents import EQUIVALENTS
from tests.mutants.named import NAMED

ROOT = Path(__file__).parent.parent.parent
FOLDERS = (
    "coordinator/core",
    "coordinator/runtime",
    "coordinator/cluster",
    "coordinator/handlers",
    "coordinator/server",
    "coordinator/web",
    "storage",
)
FILES = ("coordinator/embed/life.py",)
WARM = ("aiokafka.protocol.types", "kio.schema.index", "pytest_asyncio.plugin", "sqlite3", "uuid")


def run_world(seed: int) -> None:
    """Imported by the child, whose project has the mutant in it."""
    from tests.simulation.consumer_worlds import run_consumer_world
    from tests.simulation.worlds import run_world

    run_world(seed)
    run_consumer_world(seed)


def main() -> int:
    """Return what the process ends with: 1 if too few were caught, 2 if nonsense is asked for."""
    try:
        drawn = whole_number("DRAWN", 20, least=0)
        seed = whole_number("SEED", 14, least=0)
    except RefusedError as error:
        print(f"mutants: {error}")  # noqa: T201 - for who waits for it
        return 2
    # This process imports only these tables and ``protocol`` of the project.
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    paths += [ROOT / file for file in FILES]
    protocol = [
        f"groupkeeper.protocol.{path.stem}" for path in (ROOT / "protocol").glob("[a-z]*.py")
    ]
    plan = Plan(
        root=ROOT,
        drawn_from=[str(path.relative_to(ROOT)) for path in paths],
        tests_of=lambda path: chosen_tests(ROOT, path),
        worlds=30,
        run_world=run_world,
        warm=(*WARM, *protocol),
        named=NAMED,
        equivalents=EQUIVALENTS,
        drawn=drawn,
        seed=seed,
        only=os.environ.get("ONLY", ""),
        package="groupkeeper.",
    )
    return run(plan)


def run(plan: Plan) -> int:
    """Check, until it is done or this is ended: then the children end, too."""
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return check(plan)
    except KeyboardInterrupt:
        print("mutants: ended before it was done")  # noqa: T201 - for who waits for it
        return 130


def _interrupted(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the end
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
