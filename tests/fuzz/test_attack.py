"""The attackers tell a connection that is stuck from one that is answered, closed or parked."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.frames import read_request_header
from tests.fuzz.attack import PATIENCE_S, Attack, random_frame
from tests.fuzz.judge import Figures
from tests.fuzz.mutations import changed, mixed
from tests.fuzz.seeds import life
from tests.fuzz.target import split
from tests.helpers.runtime.virtual_loop import run_virtual

HEARTBEAT, JOIN_GROUP = 12, 11


def frame(key: int) -> bytes:
    return struct.pack(">ihhih", 10, key, 0, 7, -1)


SHORT = struct.pack(">ih", 2, HEARTBEAT)
"""A frame without room for a version; mutations make those."""


def read_of(*chunks: bytes, ends: bool) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    if ends:
        reader.feed_eof()
    return reader


@pytest.mark.parametrize(
    ("sent", "answers", "ends", "outcome"),
    [
        ([HEARTBEAT, HEARTBEAT], 2, False, "answered"),
        ([HEARTBEAT, HEARTBEAT], 1, True, "closed"),
        ([HEARTBEAT, HEARTBEAT], 1, False, "stuck"),
        ([HEARTBEAT, JOIN_GROUP, HEARTBEAT], 1, False, "parked"),
        ([HEARTBEAT, SHORT], 1, False, "stuck"),
    ],
)
async def test_how_a_connection_ended(sent, answers, ends, outcome) -> None:
    figures = Figures()
    attack = Attack(0, [], figures, 1)
    attack.patience_s = 0.01
    reader = read_of(*[struct.pack(">ii", 4, 7)] * answers, ends=ends)
    frames = [frame(each) if isinstance(each, int) else each for each in sent]
    assert await attack._outcome(reader, frames) == outcome
    assert figures.answered == answers
    assert (len(figures.stuck), figures.parked) == (outcome == "stuck", outcome == "parked")


def test_each_answer_of_a_conversation_may_take_its_time():
    """Three requests that wait for 30 s each are answered after 90 s: nothing is stuck."""

    async def slow_answers(reader: asyncio.StreamReader) -> None:
        for _ in range(3):
            await asyncio.sleep(PATIENCE_S / 2)
            reader.feed_data(struct.pack(">ii", 4, 7))

    async def converse() -> tuple[str, list[str]]:
        figures = Figures()
        attack = Attack(0, [], figures, 1)
        reader = asyncio.StreamReader()
        answers = asyncio.create_task(slow_answers(reader))
        outcome = await attack._outcome(reader, [frame(HEARTBEAT)] * 3)
        await answers
        return outcome, figures.stuck

    assert run_virtual(converse()) == ("answered", [])


def test_random_requests_are_valid_and_mutated_ones_keep_a_length_that_fits() -> None:
    rng = random.Random(1)
    for _ in range(300):
        data = random_frame(rng)
        header = read_request_header(data)
        read_request(header.api_key, header.api_version, data, header.body_offset, 10_000)
        assert split(changed(rng, data)) != []


def test_a_mixed_conversation_is_still_made_of_frames() -> None:
    rng = random.Random(1)
    data = life(0)
    mixes = [mixed(rng, data, lambda part: part[:-1]) for _ in range(100)]
    assert sum(b"".join(split(mix)) == mix for mix in mixes) > 80
    assert len(set(mixes)) > 20
