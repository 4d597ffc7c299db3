"""``groupkeeper storage move`` to and from a real PostgreSQL: killed, and repeated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupkeeper.coordinator.core.records import Record
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.core.records import commit, group_record
from tests.helpers.storage.postgres_site import PostgresSite
from tests.helpers.storage.real_postgres import RealPostgres
from tests.helpers.storage.storage_owner import IDENTITY, Owner

pytestmark = pytest.mark.postgres

NAMES = ["", "a/b", ".", "\0", "x" * 32_767, "plain"]


def records(name: str) -> list[Record]:
    """A group of more than one portion of a move."""
    return [group_record(name), commit(name, 7, partitions=3_000, metadata="m" * 400)]


class Moves:
    """The command, with the settings of the test's store."""

    def __init__(self, source: str, target: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "groupkeeper", "storage", "move"]
        self._command += ["--from", source, "--to", target]
        self._folder = folder
        self._settings = {
            "GROUPKEEPER_KAFKA__CLUSTER_ID": IDENTITY.cluster_id,
            "GROUPKEEPER_OFFSETS__TOPIC_NUM_PARTITIONS": str(IDENTITY.shards),
            "GROUPKEEPER_LOG__SEALING": "off",
        }

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            cwd=self._folder,
            env={**os.environ, **self._settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill_after(self, lines: int) -> None:
        """Kill the command after it has printed so many lines of progress."""
        with self.start() as process:
            assert process.stdout is not None
            while lines:
                line = process.stdout.readline()
                assert line, "the move has ended"
                lines -= " values" in line
            process.kill()
            process.stdout.close()

    def run(self) -> str:
        with self.start() as process:
            output, _ = process.communicate()
        assert process.returncode == 0, output
        return output


def url_of(server: RealPostgres, site: PostgresSite) -> str:
    return f"{server.url}{'&' if '?' in server.url else '?'}schema={site.schema}"


async def filled(owner: Owner) -> Owner:
    await owner.start()
    for name in NAMES:
        for record in records(name):
            await owner.append(1, [record])
    await owner.storage.close()
    return owner


async def test_a_move_is_killed_in_each_portion_and_then_completes(
    postgres: RealPostgres, tmp_path: Path
) -> None:
    source = await filled(Owner(SqliteOffsetStorage(tmp_path / "a.db")))
    site = PostgresSite(postgres)
    moves = Moves(f"sqlite:///{tmp_path / 'a.db'}", url_of(postgres, site), tmp_path)
    for lines in (1, 2):
        await asyncio.to_thread(moves.kill_after, lines)
    assert "6 groups are in the new store" in await asyncio.to_thread(moves.run)
    owner = await site.owner()
    assert owner.model.keys == source.model.keys
    await owner.storage.close()
    assert "; 0 values were written" in await asyncio.to_thread(moves.run)


async def test_a_killed_move_out_of_a_server_completes(
    postgres: RealPostgres, tmp_path: Path
) -> None:
    site = PostgresSite(postgres)
    source = await filled(Owner(site.storage()))
    moves = Moves(url_of(postgres, site), f"sqlite:///{tmp_path / 'b.db'}", tmp_path)
    for _ in range(2):
        await asyncio.to_thread(moves.kill_after, 1)
    await asyncio.to_thread(moves.run)
    owner = await Owner(SqliteOffsetStorage(tmp_path / "b.db")).start()
    assert owner.model.keys == source.model.keys
    await owner.storage.close()
