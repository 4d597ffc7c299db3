"""Cutting a stream into frames."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from groupkeeper.protocol.frames import FrameError, FrameSplitter


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_a_whole_frame_is_handed_on_as_it_came() -> None:
    frame = framed(b"request")
    (only,) = FrameSplitter(100).feed(frame)
    assert only is frame


def test_several_frames_in_one_read_come_in_order() -> None:
    splitter = FrameSplitter(100)
    assert splitter.feed(framed(b"a") + framed(b"") + framed(b"ccc")) == [
        framed(b"a"),
        framed(b""),
        framed(b"ccc"),
    ]
    assert splitter.waiting_bytes == 0


def test_frames_are_the_same_however_the_stream_is_cut() -> None:
    stream = framed(b"first") + framed(b"x" * 30) + framed(b"") + framed(b"last")
    for step in range(1, len(stream)):
        splitter = FrameSplitter(100)
        frames = []
        for start in range(0, len(stream), step):
            frames += splitter.feed(stream[start : start + step])
        assert b"".join(frames) == stream
        assert len(frames) == 4
        assert splitter.waiting_bytes == 0


def test_what_waits_is_counted() -> None:
    splitter = FrameSplitter(100)
    assert splitter.feed(b"\0\0") == []
    assert splitter.waiting_bytes == 2
    assert splitter.feed(b"\0\x05ab") == []
    assert splitter.waiting_bytes == 6
    assert splitter.feed(b"cde") == [framed(b"abcde")]
    assert splitter.waiting_bytes == 0


def test_a_frame_of_the_largest_size_passes() -> None:
    assert FrameSplitter(10).feed(framed(b"x" * 10)) == [framed(b"x" * 10)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", 101), "frame_too_large"),
        (struct.pack(">i", 2**31 - 1), "frame_too_large"),
        (struct.pack(">i", -1), "negative_length"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "not_kafka_tls"),
        (b"GET / HTTP/1.1\r\n", "not_kafka_http"),
        (b"POST / HTTP/1.1\r\n", "not_kafka_http"),
        (b"PRI * HTTP/2.0\r\n", "not_kafka_http"),
        (b"SSH-2.0-OpenSSH", "frame_too_large"),
    ],
)
def test_a_length_that_cannot_be_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError) as raised:
        FrameSplitter(100).feed(data)
    assert raised.value.reason == reason
    assert raised.value.frames == []


def test_frames_before_a_bad_length_are_not_lost() -> None:
    splitter = FrameSplitter(100)
    splitter.feed(framed(b"whole")[:3])
    with pytest.raises(FrameError) as raised:
        splitter.feed(framed(b"whole")[3:] + framed(b"two") + b"\xff\xff\xff\xff")
    assert raised.value.frames == [framed(b"whole"), framed(b"two")]


def test_memory_follows_what_has_arrived_not_what_was_announced() -> None:
    tracemalloc.start()
    splitter = FrameSplitter(100_000_000)
    splitter.feed(struct.pack(">i", 99_000_000))
    for _ in range(10_000):
        splitter.feed(b"x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert splitter.waiting_bytes == 10_004
    assert peak < 100_000


def test_one_whole_frame_needs_no_feeding() -> None:
    splitter = FrameSplitter(10)
    assert splitter.is_one(framed(b"x" * 10))
    assert splitter.is_one(framed(b""))
    for data in (b"", b"\0\0\0", framed(b"x" * 11), framed(b"a") + b"b", framed(b"ab")[:-1]):
        assert not splitter.is_one(data)
    splitter.feed(framed(b"ab")[:-1])
    assert not splitter.is_one(framed(b"c"))


def test_the_incomplete_frames_of_two_connections_do_not_mix() -> None:
    """Connections without an incomplete frame share one empty buffer."""
    one, other = FrameSplitter(100), FrameSplitter(100)
    frame = framed(b"request")
    assert one.feed(frame[:5]) == []
    assert other.waiting_bytes == 0
    assert other.feed(frame[:7]) == []
    assert one.feed(frame[5:] + frame[:3]) == [frame]
    one.forget()
    assert (one.waiting_bytes, other.waiting_bytes) == (0, 7)
    assert other.feed(frame[7:]) == [frame]
    assert FrameSplitter(100).waiting_bytes == 0
