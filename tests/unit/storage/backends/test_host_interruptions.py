"""Methods of a host's store that raise what is no Exception: every request is answered all the
same, and the next ones are served.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from tests.helpers.runtime.embedded import a_commit
from tests.helpers.runtime.virtual_loop import VirtualClock, virtual_time, virtual_timer
from tests.helpers.storage.dict_store import DictStore

METHODS = ["store", "fetch_all", "delete"]


class Interrupted(BaseException):
    """What test runners and schedulers of other kinds interrupt a call with."""


class InterruptedStore(DictStore):
    """One of its methods raises, once; at once, or after it has waited."""

    def __init__(self, method: str, error: type[BaseException], *, at_once: bool) -> None:
        super().__init__()
        self.errors = {method: [error]}
        self.at_once = at_once

    def store(self, *args: Any) -> Any:
        return self._call("store", *args)

    def fetch_all(self, *args: Any) -> Any:
        return self._call("fetch_all", *args)

    def delete(self, *args: Any) -> Any:
        return self._call("delete", *args)

    def _call(self, method: str, *args: Any) -> Any:
        if self.at_once:
            self._raise(method)
        return self._later(method, *args)

    async def _later(self, method: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        self._raise(method)
        return getattr(DictStore, method)(self, *args)

    def _raise(self, method: str) -> None:
        if self.errors.get(method):
            raise self.errors[method].pop()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [asyncio.CancelledError, Interrupted])
@pytest.mark.parametrize("method", METHODS)
@virtual_time
async def test_what_is_no_exception_is_answered_like_any_other_failure(
    method: str, error: type[BaseException], at_once: bool
) -> None:
    store = InterruptedStore(method, error, at_once=at_once)
    config = CoordinatorConfig(shards=4)
    coordinator = GroupCoordinator(
        PersistentOffsetStorage(store), config, clock=VirtualClock(), timer=virtual_timer
    )
    await coordinator.start()
    async with asyncio.timeout(60):
        first = (await coordinator.commit_offsets(a_commit(1))).error_code
        deleted = (await coordinator.delete_groups("g"))["g"]
        await asyncio.sleep(1)  # a failed write is followed by a load
        second = (await coordinator.commit_offsets(a_commit(2))).error_code
        found = await coordinator.get_committed_offset("g", "orders", 0)
    await coordinator.stop()
    failed = deleted if method == "delete" else first
    assert failed in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    assert second is ErrorCode.NONE
    assert found == 2
