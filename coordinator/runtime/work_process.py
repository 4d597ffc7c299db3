"""The process that computes target assignments for a daemon or a host.

    python -m groupkeeper.coordinator.embed.assign

It reads orders from stdin and writes answers to stdout, each after its length. It knows no groups,
and gets no socket, lock or file of the daemon. It ends when stdin ends, even in the middle of a
computation. It may be killed at any time.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Final, Literal, TypeAlias

import msgspec

from groupkeeper.coordinator.core.assignors.types import PartitionAssignor
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, Target
from groupkeeper.coordinator.core.consumer.assignment_work import (
    AssignmentNames,
    InvalidTargetError,
    compute,
)
from groupkeeper.storage.python_child import ignore_stop_signals

NICENESS: Final = 5
"""The value by which this process lowers its own priority (``os.nice``). So if all cores are busy,
the process with the event loop runs first."""
LENGTH_BYTES: Final = 4
MESSAGE_CHARS: Final = 300
"""In the log, the text of an exception is cut to this length."""

FindAssignor: TypeAlias = Callable[[str], PartitionAssignor]


class AssignmentOrder(msgspec.Struct, array_like=True):
    """One target assignment to compute: which member shall have which partitions."""

    assignor: str
    spec: GroupSpec
    names: AssignmentNames | None


class AssignmentAnswer(msgspec.Struct, array_like=True):
    """The computed target assignment, or the reason why there is none."""

    target: Target
    failure: Literal["", "raised", "invalid"] = ""
    message: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_order: Final = msgspec.msgpack.Decoder(AssignmentOrder).decode
decode_answer: Final = msgspec.msgpack.Decoder(AssignmentAnswer).decode


def frame(message: AssignmentOrder | AssignmentAnswer) -> bytes:
    """Return the encoded message, with its length in front of it."""
    body = _encode(message)
    return len(body).to_bytes(LENGTH_BYTES) + body


def serve(find: FindAssignor, orders: Iterator[bytes], answers: IO[bytes]) -> None:
    """Carry out each order, and write its answer to ``answers``."""
    for body in orders:
        answers.write(frame(_answer(find, body)))
        answers.flush()


def _answer(find: FindAssignor, body: bytes) -> AssignmentAnswer:
    try:
        order = _decode_order(body)
        return AssignmentAnswer(compute(order.assignor, order.spec, order.names, find))
    except InvalidTargetError as error:
        return AssignmentAnswer([], "invalid", str(error)[:MESSAGE_CHARS])
    except Exception as error:  # noqa: BLE001 - the assignor may be anybody's
        return AssignmentAnswer([], "raised", repr(error)[:MESSAGE_CHARS])


def orders_until_the_end(source: IO[bytes]) -> Iterator[bytes]:
    """Yield orders as they arrive. When ``source`` (stdin) ends, this process exits at once, even
    in the middle of a computation.
    """
    orders: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        while len(length := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
            orders.put(source.read(int.from_bytes(length)))
        os._exit(0)

    threading.Thread(target=read, name="orders", daemon=True).start()
    while True:
        yield orders.get()


def main(find: FindAssignor) -> None:
    """Compute the orders that come on stdin, at a low priority, until stdin ends.

    ``find`` returns the assignor of a name. If an assignor prints text, the text goes to stderr.
    """
    ignore_stop_signals()
    with suppress(OSError):  # the process may not be allowed to change it
        os.nice(NICENESS)
    # Text that an assignor prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(BrokenPipeError):  # the daemon has ended, and nobody reads the answer
        serve(find, orders_until_the_end(sys.stdin.buffer), answers)
