"""``examples/readers.py`` runs as it is, in a process of its own, and tells what it is to tell."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.printed.printed_docs import ROOT
from tests.registry.readers.log_of_messages import Watched

pytestmark = pytest.mark.registry


async def test_two_members_read_the_topic_to_its_end(kafka: Watched, consul: RealConsul) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "examples/readers.py"),
        *(consul.address, kafka.bootstrap, "short", "2"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    first, *members = out.decode().splitlines()
    assert first.startswith("first message of partition 0: b'0/0/")
    counts = [re.fullmatch(r"(one|two): (\d+) messages of .*", line) for line in members]
    assert sorted(each[1] for each in counts if each) == ["one", "two"]
    assert sum(int(each[2]) for each in counts if each) >= 3_500
