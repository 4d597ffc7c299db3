"""One writer, any number of readers: other processes of the same user."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StoreRefused
from tests.helpers.core.records import commit
from tests.helpers.storage.storage_owner import IDENTITY, Owner

HOLDER = """
import asyncio, sys
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.core.records import commit
from tests.helpers.storage.storage_owner import Owner

async def hold():
    owner = await Owner(SqliteOffsetStorage(sys.argv[1])).start()
    await owner.append(0, [commit("g", 7)])
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await owner.storage.close()

asyncio.run(hold())
"""

READER = """
import sys
from groupkeeper import read_events

for line in sys.stdin:
    print([event["seq"] for event in read_events(sys.argv[1])], flush=True)
"""


@asynccontextmanager
async def python(script: str, path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a script in a process of its own, ended at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 20)


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()


async def test_a_second_process_is_refused_with_the_file_and_the_holders_pid(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    async with python(HOLDER, path) as holder:
        assert await line_of(holder) == "ready"
        with pytest.raises(StoreRefused) as refusal:
            await SqliteOffsetStorage(path).open(IDENTITY)
        message = str(refusal.value)
        assert str(path) in message
        assert f"process {holder.pid}" in message
        assert "\n" not in message
    owner = await Owner(SqliteOffsetStorage(path)).start()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 7
    await owner.storage.close()


async def test_the_lock_of_a_killed_process_is_free_and_its_end_is_known_as_unclean(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.db"
    async with python(HOLDER, path) as holder:
        assert await line_of(holder) == "ready"
        os.kill(holder.pid, signal.SIGKILL)
        await holder.wait()
        owner = await Owner(SqliteOffsetStorage(path)).start()
        assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 7
        assert owner.storage.ended_uncleanly  # type: ignore[attr-defined]
        assert await owner.storage.check_after_unclean_end() is None
        await owner.storage.close()


async def test_another_name_of_the_file_is_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    (tmp_path / "other.db").symlink_to(path)
    owner = await Owner(SqliteOffsetStorage(path)).start()
    with pytest.raises(StoreRefused, match="in use by another coordinator of this process"):
        await SqliteOffsetStorage(tmp_path / "other.db").open(IDENTITY)
    await owner.storage.close()


async def test_a_reader_in_another_process_reads_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner = await Owner(SqliteOffsetStorage(path)).start()
    async with python(READER, path) as reader:

        async def read() -> str:
            assert reader.stdin is not None
            reader.stdin.write(b"now\n")
            return await line_of(reader)

        assert await read() == "[]"
        await owner.append(0, [commit("g", 1)])
        assert await read() == "[1]"
        await owner.append(0, [commit("g", 2)])
        assert await read() == "[1, 2]"
        await owner.storage.close()
        assert await read() == "[1, 2]"
        again = await Owner(SqliteOffsetStorage(path)).start()
        await again.append(0, [commit("g", 3)])
        assert await read() == "[1, 2, 3, 4]"
        await again.storage.close()
