"""One input once more, with its log lines: ``python -m tests.fuzz.replay FILE...``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.fuzz.target import TARGETS


def main() -> int:
    """Run each file through every target; an exception is what was found."""
    logging.basicConfig(level=logging.INFO)
    for name in sys.argv[1:]:
        for target, run in TARGETS.items():
            print(f"{target}: {name}")
            run(Path(name).read_bytes())
    print(f"{len(sys.argv) - 1} inputs, each answered or refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
