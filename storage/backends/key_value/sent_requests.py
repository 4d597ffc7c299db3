"""Counts the requests that the calls of a driver send to a server. A call may send several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_call: ContextVar[str] = ContextVar("call")
"""The call that runs. Tasks that it begins belong to it too."""


class SentRequests:
    """Counts requests by the name of the call that sends them."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    @contextmanager
    def of(self, call: str) -> Iterator[None]:
        """Count the requests in the block under a name."""
        token = _call.set(call)
        try:
            yield
        finally:
            _call.reset(token)

    def count(self) -> None:
        """Count a request. Called before it is sent."""
        self._counts[_call.get()] += 1
