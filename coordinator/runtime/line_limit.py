"""Limits log lines, so that a flood of requests does not flood the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_KEYS: Final = 1_000
"""The largest number of keys that are remembered. If there are more, all keys are forgotten. A few
more lines than allowed may then be written."""


class LineLimit:
    """Allows at most ``lines`` lines for each key in a window of ``window_s`` seconds."""

    __slots__ = ("_clock_s", "_lines", "_window_s", "_windows")

    def __init__(self, clock_s: Callable[[], float], window_s: float, lines: int) -> None:
        """``clock_s`` returns the seconds of a monotonic clock."""
        self._clock_s = clock_s
        self._window_s = window_s
        self._lines = lines
        self._windows: dict[str, tuple[float, int, int]] = {}
        """Key -> (start of its window, lines written in it, lines left out since the last line)."""

    def allow(self, key: str) -> int | None:
        """Return None if this line must not be written. Otherwise return how many lines of this key
        were left out since the last one.
        """
        now_s = self._clock_s()
        window = self._windows.get(key)
        if window is None and len(self._windows) >= MAX_KEYS:
            self._windows.clear()
        begin_s, written, left_out = window or (now_s, 0, 0)
        if now_s - begin_s >= self._window_s:
            begin_s, written = now_s, 0
        if written >= self._lines:
            self._windows[key] = (begin_s, written, left_out + 1)
            return None
        self._windows[key] = (begin_s, written + 1, 0)
        return left_out

    def forget(self, key: str) -> None:
        """Forget the lines that were counted for a key. Called if an allowed line was not
        written.
        """
        self._windows.pop(key, None)


class LinesOfMany:
    """Allows one line for each key in ``key_window_s`` seconds, and ``lines`` lines for all keys
    together in ``window_s`` seconds.
    """

    __slots__ = ("_all", "_keys")

    def __init__(
        self, clock_s: Callable[[], float], key_window_s: float, window_s: float, lines: int
    ) -> None:
        """``clock_s`` returns the seconds of a monotonic clock. ``lines`` is the number for all
        keys together in ``window_s``.
        """
        self._keys = LineLimit(clock_s, key_window_s, 1)
        self._all = LineLimit(clock_s, window_s, lines)

    def allow(self, key: str) -> int | None:
        """Return None if this line must not be written. Otherwise return how many lines were left
        out since the last line because of the limit for all keys.
        """
        if self._keys.allow(key) is None:
            return None
        left_out = self._all.allow("")
        if left_out is None:
            self._keys.forget(key)  # otherwise a flood of other keys would hide this one
        return left_out
