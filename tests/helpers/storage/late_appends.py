"""Appends of a process whose life in a shared store ends at the same time."""

from __future__ import annotations

import asyncio

from groupkeeper.storage.base import Batch
from tests.helpers.core.records import commit
from tests.helpers.storage.storage_owner import Owner

TTL_MS = 1_000
"""The time to live of a life in these tests."""


async def offset_after_load(owner: Owner) -> int | None:
    await owner.reload()
    found = owner.model.keys.get(("offset", 0, "g", "orders", 0))
    return None if found is None else found[0]


def late_append(owner: Owner) -> asyncio.Future[object]:
    record = commit("g", 2)
    # as a shard does: otherwise a fold would write the state before the record
    owner.model.apply(0, record)
    item = owner.item(0, Batch([record], []))
    return asyncio.ensure_future(owner.storage.append([item]))
