"""How the payload of a row is stored: small ones as text, larger ones compressed."""

from __future__ import annotations

import zlib

import pytest

from groupkeeper.storage.backends.sqlite.packed import PACKED_FROM_BYTES, pack, unpack
from groupkeeper.storage.base import StorageError

SMALL = b'{"version":3,"items":[]}'
LARGE = b'{"version":3,"items":[%s]}' % b",".join([b'{"shard":7}'] * 1_000)


def test_a_small_payload_stays_text_that_a_person_can_read():
    assert pack(SMALL) == SMALL.decode()
    assert unpack(SMALL) == SMALL


def test_a_large_payload_is_a_zlib_stream_that_other_programs_can_read():
    packed = pack(LARGE)
    assert isinstance(packed, bytes)
    assert len(packed) < len(LARGE) / 10
    assert zlib.decompress(packed) == unpack(packed) == LARGE


@pytest.mark.parametrize("size", [PACKED_FROM_BYTES - 1, PACKED_FROM_BYTES])
def test_at_the_limit_both_forms_are_read_again(size):
    payload = b'{"%s":"\xc3\xa9"}' % (b"x" * (size - 9))
    packed = pack(payload)
    assert len(payload) == size
    assert isinstance(packed, str) == (size < PACKED_FROM_BYTES)
    assert unpack(packed.encode() if isinstance(packed, str) else packed) == payload


@pytest.mark.parametrize("payload", [SMALL, LARGE])
def test_a_payload_of_an_earlier_version_is_text_of_any_size(payload):
    assert unpack(payload) == payload


@pytest.mark.parametrize("place", [0, 1, 30, -3])
def test_damage_in_a_compressed_payload_is_found(place):
    packed = pack(LARGE)
    assert isinstance(packed, bytes)
    damaged = bytearray(packed)
    damaged[place] ^= 0x10
    if place == 0:  # it is no zlib stream any more: the decoder of the payload refuses it
        assert unpack(bytes(damaged)) == damaged
        return
    with pytest.raises(StorageError, match="a log row cannot be read: "):
        unpack(bytes(damaged))


def test_a_compressed_payload_that_is_cut_off_is_found():
    packed = pack(LARGE)
    assert isinstance(packed, bytes)
    with pytest.raises(StorageError, match="a log row cannot be read: "):
        unpack(packed[:-1])
