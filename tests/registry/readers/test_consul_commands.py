"""``groupkeeper consul`` against a real Consul and a real Kafka."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.group_keys import GroupKeys
from groupkeeper.storage.connections.consul import ConsulClient
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.printed.printed_docs import ROOT
from tests.registry.readers.log_of_messages import Watched

pytestmark = pytest.mark.registry


async def started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "groupkeeper", "consul", *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def done(*arguments: str) -> tuple[int | None, str, str]:
    """Its exit code, and what it printed."""
    process = await started(*arguments)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def test_groups_members_and_positions_are_shown(kafka: Watched, consul: RealConsul) -> None:
    name = f"shown-{uuid4().hex[:8]}"
    at = ("--consul", consul.address)
    async with ConsulGroup(name, consul.address, "spread") as group:
        share = await group.new_readers(kafka.bootstrap, "short", 2)
        await share[1].commit(7)
        code, out, _ = await done("groups", *at, "-o", "json")
        assert code == 0
        assert {"group": name, "members": 1} in json.loads(out)
        code, out, _ = await done("members", name, *at, "-o", "json")
        rows = json.loads(out)
        assert [(row["partition"], row["position"]) for row in rows] == [(0, None), (1, 7)]
        assert len({row["member"] for row in rows}) == 1
    code, out, _ = await done("members", name, *at)
    assert (code, out.splitlines()[1].split()) == (0, ["short", "1", "-", "7"])


async def test_a_group_with_a_broken_position_does_not_hide_the_others(consul: RealConsul) -> None:
    name = f"broken-{uuid4().hex[:8]}"
    async with ConsulClient(consul.address) as client:
        await client.put(f"{GroupKeys(name).root}positions/orders/0", b"soon")
    code, out, _ = await done("groups", "--consul", consul.address, "-o", "json")
    assert code == 0
    assert {"group": name, "members": 0} in json.loads(out)


async def test_a_command_reads_as_a_member_and_commits_if_asked(
    kafka: Watched, consul: RealConsul
) -> None:
    name = f"read-{uuid4().hex[:8]}"
    at = ("--consul", consul.address, "--server", kafka.bootstrap, "--partitions", "1")
    code, out, err = await done("read", name, "short", *at, "--max-messages", "3", "--commit")
    assert (code, err) == (0, "")
    assert [line.split("\t")[:3] for line in out.splitlines()] == [
        ["0", str(n), str(n)] for n in range(3)
    ]
    code, out, _ = await done("read", name, "short", *at, "--max-messages", "1", "-o", "json")
    message = json.loads(out)
    assert (message["offset"], message["key"]) == (3, "3")
    process = await started("read", name, "short", *at)
    assert process.stdout is not None
    assert (await process.stdout.readline()).split(b"\t")[1] == b"3"  # nothing was committed
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130


async def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    consul: RealConsul, tmp_path: Path
) -> None:
    config = tmp_path / "consul.properties"
    config.write_text("tokem=x\n")
    unknown, refused, bad_name, away = await asyncio.gather(
        done("members", "nobody", "--consul", consul.address),
        done("groups", "--consul", consul.address, "--consul-config", str(config)),
        done("members", "a/b", "--consul", consul.address),
        done("groups", "--consul", "127.0.0.1:1"),
    )
    assert (unknown[0], unknown[2]) == (4, "groupkeeper: there is no group 'nobody' in Consul\n")
    assert refused[0] == 2
    assert "unknown setting tokem" in refused[2]
    assert (bad_name[0], bad_name[2].count("\n")) == (2, 1)
    assert (away[0], away[2].count("\n")) == (1, 1)
