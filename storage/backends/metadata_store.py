"""The store of a host program: its four methods, and how the coordinator calls them.

The host's code may do anything. So its exceptions and its values are checked here, at each call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from groupkeeper.coordinator.core.records import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    SavedOffset,
)
from groupkeeper.coordinator.core.wire_values import int32, int64, text
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.cancellation import unless_cancelled

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset as the host's store keeps it. Times are wall-clock milliseconds."""

    offset: int
    """The committed offset. -1 means that the offset of this partition was deleted, while other
    partitions of its group remain. A client that commits -1 has the same effect. Store it like any
    other offset. Other negative offsets are normal offsets."""
    metadata: str = ""
    commit_time_ms: int = NO_TIMESTAMP
    """-1 means that the time is unknown. The retention time then counts from the next commit of the
    offset, or from the time when its group loses its last member."""
    expire_time_ms: int = NO_TIMESTAMP
    """The time when the offset expires. -1: the coordinator's retention time decides."""
    leader_epoch: int = NO_LEADER_EPOCH


GroupOffsets: TypeAlias = Mapping[str, Mapping[int, OffsetAndMetadata]]
"""All offsets of a group: by topic, then by partition."""


class MetadataStore(Protocol):
    """A store of the host. A method may be ``async``. If it is not, it runs on the event loop and
    must not block. If a method raises, the client gets an error that it retries.

    After a method has returned or raised, it must not write any more. The next call for the group
    follows at once. A late write, for example by a thread after the store's own timeout, would
    overwrite the result of that call.

    ``store`` and ``delete`` are never cancelled while the loop runs, however long they take.
    ``fetch`` and ``fetch_all`` may be cancelled. If a cancelled ``fetch_all`` continues, the
    coordinator waits for its end before it reads or writes the group.

    The results must have exactly these types: a partition is an int, not a str as in JSON, and
    metadata is never None. Otherwise the group is refused with UNKNOWN_SERVER_ERROR, which clients
    do not retry, and the log names the wrong value.
    """

    def store(
        self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata
    ) -> Awaitable[None] | None:
        """Write one offset over the previous one. It must be durable when this returns."""
        ...

    def fetch(
        self, group_id: str, topic: str, partition: int
    ) -> Awaitable[OffsetAndMetadata | None] | OffsetAndMetadata | None:
        """Return one offset, or None if there is none."""
        ...

    def fetch_all(self, group_id: str) -> Awaitable[GroupOffsets] | GroupOffsets:
        """Return all offsets of a group; empty if there are none."""
        ...

    def delete(self, group_id: str) -> Awaitable[None] | None:
        """Delete all offsets of a group; a missing group is no error. The deletion must be durable
        when this returns.
        """
        ...


METHODS: Final = ("store", "fetch", "fetch_all", "delete")
"""The names of the four methods."""


_ENDS_THE_LOOP: Final = (KeyboardInterrupt, SystemExit)


def start_call(
    calls: dict[str, asyncio.Task[_T]], group_id: str, call: Coroutine[Any, Any, _T]
) -> asyncio.Task[_T]:
    """Start a call to the host's store for a group, and return its task. The task is in ``calls``
    until it has ended.
    """
    task = asyncio.get_running_loop().create_task(call)
    calls[group_id] = task

    def ended(task: asyncio.Task[_T]) -> None:
        del calls[group_id]
        if not task.cancelled():
            task.exception()  # avoids a warning if nobody awaits the task any more

    task.add_done_callback(ended)
    return task


def ask(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of the host's store, and return its result.

    Some exceptions do not inherit from Exception, for example CancelledError. They are raised as
    StorageError: otherwise they would end a task of the coordinator, and requests would get no
    answer. KeyboardInterrupt and SystemExit are raised unchanged, because they end the process.
    """
    try:
        return method(*args)
    except (Exception, *_ENDS_THE_LOOP):
        raise
    except BaseException as error:
        raise StorageError(f"the store raised {error!r}") from error


async def result_of(value: Any) -> Any:
    """Return the result of a method of the host's store. If it is awaitable, await it first.

    Raises StorageError in the same cases as ``ask``. Also raises StorageError if the method was
    cancelled and the caller was not.
    """
    if not inspect.isawaitable(value):
        return value
    try:
        return await unless_cancelled(value)
    except (Exception, asyncio.CancelledError, GeneratorExit, *_ENDS_THE_LOOP):
        raise
    except BaseException as error:
        raise StorageError(f"the store raised {error!r}") from error


UNFIT: Final = (AttributeError, TypeError, ValueError)
"""The exceptions that a check raises for values of a wrong type or size."""


def checked_offset(found: Any) -> OffsetAndMetadata:
    """Return a copy of the offset whose values are checked. Raises one of ``UNFIT`` if a value is
    not valid.
    """
    return OffsetAndMetadata(
        int64("offset", found.offset),
        text("metadata", found.metadata, most_bytes=None),
        int64("commit_time_ms", found.commit_time_ms),
        int64("expire_time_ms", found.expire_time_ms),
        int32("leader_epoch", found.leader_epoch),
    )


def saved_offset(found: Any) -> SavedOffset:
    """Check an offset of the host's store, and return it as the coordinator's ``SavedOffset``.
    Raises one of ``UNFIT`` if a value is not valid.
    """
    it = checked_offset(found)
    # topics are not stored, so the next start gives them new ids
    return SavedOffset(
        it.offset, it.leader_epoch, it.metadata, it.commit_time_ms, it.expire_time_ms, ""
    )
