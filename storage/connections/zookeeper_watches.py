"""Delivers notifications about changed znodes from kazoo's threads to the event loop.

A watch of ZooKeeper fires once, and kazoo keeps its callable until then. So all watches of one
znode share one callable, called a bell. Otherwise a thousand watches of a znode that does not
change would leave a thousand callables in kazoo.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["data", "children"]


class Bells:
    """The bells of a session: one for each watched znode and kind of watch. A bell calls all
    listeners of its znode.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._bells: dict[tuple[Kind, str], _Bell] = {}

    def watch(
        self, kind: Kind, path: str, changed: Callable[[], None] | None
    ) -> Callable[[object], None] | None:
        """Return the callable to pass to kazoo, which may call it on any thread. ``changed`` is
        then called on the loop. Return None if ``changed`` is None.
        """
        if changed is None:
            return None
        bell = self._bells.get((kind, path))
        if bell is None:
            bell = self._bells[kind, path] = _Bell(self, kind, path)
        bell.listeners.add(changed)
        return bell.fire

    def forget(self, changed: Callable[[], None]) -> None:
        """Remove this listener from all bells."""
        for bell in self._bells.values():
            bell.listeners.discard(changed)

    def ring_all(self) -> None:
        """Call all listeners, because the session has ended."""
        for bell in list(self._bells.values()):
            bell.ring()

    def post(self, bell: _Bell) -> None:
        """Ring a bell on the loop. Any thread may call this."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(bell.ring)

    def remove(self, bell: _Bell) -> None:
        """Remove a bell that has rung. The next watch creates another."""
        if self._bells.get((bell.kind, bell.path)) is bell:
            del self._bells[bell.kind, bell.path]


class _Bell:
    def __init__(self, bells: Bells, kind: Kind, path: str) -> None:
        self._bells = bells
        self.kind: Kind = kind
        self.path = path
        self.listeners: set[Callable[[], None]] = set()

    def fire(self, _event: object) -> None:
        """Report a change of the znode. Called once, on a thread of kazoo."""
        self._bells.post(self)

    def ring(self) -> None:
        """Call the listeners. Runs on the loop."""
        self._bells.remove(self)
        listeners, self.listeners = self.listeners, set()
        for changed in listeners:
            changed()
