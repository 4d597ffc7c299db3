"""One request: the client waits for its answer, and the world checks the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Op

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.world import World


class Disconnected(Exception):
    """The connection ended before the process answered."""


class Call:
    """A request of a client, and its one answer."""

    def __init__(self, world: World, node: Node, op: Op) -> None:
        self.op = op
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_cut = False
        self._world = world
        self._node = node

    @property
    def is_over(self) -> bool:
        return self.is_cut or self.op.answered_at is not None

    def resolve(self, result: Any) -> None:
        """Receive the answer and pass it to the client at once. For a call in process."""
        self.answer(result)()

    def answer(self, result: Any) -> Callable[[], None]:
        """Receive the answer. Return a function that passes it to the client."""
        if self.is_cut:
            return self._nothing  # said into a way that is gone
        if self.op.answered_at is not None:
            self._world.durable.problem(f"answered twice: {self.op.request}")
        self._world.answered(self._node, self.op, result)
        self._node.fate.point()
        return lambda: self._hear(result)

    def cut(self) -> None:
        """End the call without an answer, because the connection ended."""
        self.is_cut = True
        if self.op.answered_at is None:
            self.op.is_cut = True
        if not self.future.done():
            self.future.set_exception(Disconnected())
            self.future.exception()  # its client may be gone too

    def _hear(self, result: Any) -> None:
        if not self.future.done():  # the client may have gone
            self.future.set_result(result)

    def _nothing(self) -> None:
        pass
