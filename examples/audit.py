"""Who moved the offsets, and how to put them back: the commit log, read and replayed."""

import asyncio
import tempfile
from pathlib import Path

from groupkeeper import (
    GroupCoordinator,
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetManager,
    SqliteOffsetStorage,
    replay,
)


async def commit(coordinator: GroupCoordinator, offset: int, client_id: str) -> None:
    offsets = {"orders": {0: OffsetCommitData(offset)}}
    request = OffsetCommitRequest(group_id="billing", offsets=offsets, client_id=client_id)
    (await coordinator.commit_offsets(request)).raise_for_error()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        coordinator = GroupCoordinator(SqliteOffsetStorage(Path(folder, "groups.db")))
        await coordinator.start()
        for offset in (100, 200, 300):
            await commit(coordinator, offset, "billing-service")
        await commit(coordinator, 3, "somebody's script")

        history = [entry async for entry in coordinator.commit_log("billing")]
        for entry in history:
            print(f"{entry.previous_offset:4} -> {entry.offset:4}  by {entry.client_id}")

        good = [entry for entry in history if entry.client_id == "billing-service"]
        await replay(good, into=coordinator)
        print("put back to", await OffsetManager(coordinator).get_all_offsets("billing"))
        await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
