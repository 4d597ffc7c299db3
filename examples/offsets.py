"""Offsets one at a time: a batch job that remembers how far it came, and an administrator."""

import asyncio

from groupkeeper import GroupCoordinator, GroupError, MemoryOffsetStorage, OffsetManager


async def main() -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.start()
    offsets = OffsetManager(coordinator)

    begin = await offsets.get_offset("nightly-job", "orders", 0) or 0
    await offsets.commit_offset("nightly-job", "orders", 0, begin + 1_000, "run of Monday")
    await offsets.commit_offset("nightly-job", "orders", 1, 990)
    print("now at", await offsets.get_all_offsets("nightly-job"))

    try:
        offsets.validate_offset(5_000, 0, 1_200)
    except GroupError as error:
        print("refused:", error.code.name, "-", error.message)

    await offsets.reset_offsets("nightly-job")
    print("after the reset", await offsets.get_all_offsets("nightly-job"))
    await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
