"""What a person sees of a soak: a line for everything that is done, and how all fare meanwhile."""

from __future__ import annotations

import os
import sys
import time

RED, GREEN, YELLOW, BOLD, DIM = "31", "32", "33", "1", "2"


class Screen:
    """A timeline: coloured on a terminal (unless NO_COLOR), plain elsewhere."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._coloured = terminal and not os.environ.get("NO_COLOR")
        self.began_s = time.monotonic()

    def heading(self, text: str) -> None:
        _write("\n" + self._colour(text, BOLD))

    def fault(self, text: str) -> None:
        """Something bad is done."""
        self._line(self._colour(f"✗ {text}", YELLOW))

    def better(self, text: str) -> None:
        """It is over."""
        self._line(self._colour(f"✓ {text}", GREEN))

    def finding(self, text: str) -> None:
        """A judge found something."""
        self._line(self._colour(f"! {text}", RED))

    def say(self, text: str) -> None:
        self._line(text)

    def last(self, text: str, *, passed: bool) -> None:
        """The one line with the figures."""
        _write(self._colour(text, GREEN if passed else RED))

    def _line(self, text: str) -> None:
        at = self._colour(f"{time.monotonic() - self.began_s:6.1f} s", DIM)
        _write(f"{at}  {text}")

    def _colour(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._coloured else text


def _write(line: str) -> None:
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stdout.flush()  # for whoever watches it in a pipe


def counted(counts: dict[str, int]) -> str:
    """``join 3, leave 2``, the largest first; ``none``."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count:,}" for name, count in ordered if count) or "none"
