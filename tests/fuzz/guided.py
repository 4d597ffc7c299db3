"""Coverage-guided fuzzing of one target by atheris, which is libFuzzer for Python.

``python -m tests.fuzz.guided readers|handlers [libFuzzer's options]``; ``make fuzz`` starts both.
"""

from __future__ import annotations

import logging
import os
import random
import sys

import atheris

with atheris.instrument_imports(include=["groupkeeper"]):
    from tests.fuzz.mutations import mixed
    from tests.fuzz.target import TARGETS

ITSELF = "FUZZ_ITSELF"
"""A program that runs this again for the same target: libFuzzer starts itself anew to merge."""


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """libFuzzer's own mutations, but inside a frame whose length is put right again."""
    changed = mixed(random.Random(seed), data, lambda part: atheris.Mutate(part, max_size))
    return changed[:max_size]


def main() -> None:
    """Fuzz until a limit among the options is reached, or something is found."""
    run = TARGETS[sys.argv[1]]
    logging.disable(logging.CRITICAL)
    arguments = [os.environ.get(ITSELF) or sys.argv[0], *sys.argv[2:]]
    atheris.Setup(arguments, lambda data: run(bytes(data)), custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
