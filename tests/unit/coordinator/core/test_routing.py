"""Which shard a group belongs to: Kafka's own mapping (docs/design.md#shards,
docs/spec/cluster.md#find-coordinator).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core import routing
from groupkeeper.coordinator.core.routing import java_hash, shard_of


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96_354),
        ("Hello", 69_609_650),
        ("hello world", 1_794_106_052),
        ("The quick brown fox jumps over the lazy dog", -609_428_141),
        ("é", 233),
        # An emoji is two UTF-16 units, U+D83D and U+DE00: 55357 * 31 + 56832.
        ("😀", 1_772_899),
        ("group-😀", None),
        ("consumer-group-42", None),
    ],
)
@pytest.mark.parametrize("shards", [1, 7, 50])
def test_group_belongs_to_the_shard_of_its_java_hash(group_id, java_hash, shards):
    """The known hashes are java.lang.String.hashCode's; the others are counted out the long way."""
    units = group_id.encode("utf-16-be")
    counted = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        counted = (counted * 31 + high * 256 + low) % 2**32
    signed = counted - 2**32 if counted >= 2**31 else counted
    if java_hash is not None:
        assert signed == java_hash
    assert shard_of(group_id, shards) == abs(signed) % shards


@pytest.mark.parametrize("group_id", ["polygenelubricants", "DESIGNING WORKHOUSES"])
@pytest.mark.parametrize("shards", [3, 7, 50])
def test_group_that_hashes_to_the_smallest_integer_belongs_to_shard_zero(group_id, shards):
    """Its absolute value does not fit into an int: Kafka's Utils.abs makes it 0."""
    assert shard_of(group_id, shards) == 0


def test_fifty_shards_are_all_used():
    assert {shard_of(f"group-{n}", 50) for n in range(1_000)} == set(range(50))


@pytest.mark.parametrize("letter", ["a", "é", "日", "\U0001f600", "\uffff", "\0"])
@pytest.mark.parametrize("length", [63, 64, 65, 127, 128, 129, 1_000, 4_096, 4_097, 10_922])
def test_a_long_id_is_hashed_as_the_loop_hashes_it(letter, length):
    group_id = letter * (length - 1) + "z"
    counted = 0
    units = group_id.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        counted = (counted * 31 + high * 256 + low) % 2**32
    assert java_hash(group_id) % 2**32 == counted


def test_a_long_id_is_never_hashed_unit_by_unit(monkeypatch):
    """A group id may have 32,767 bytes, and a loop over them holds the event loop for
    milliseconds."""
    monkeypatch.setattr(routing, "_looped", lambda _: pytest.fail("a loop over a long id"))
    java_hash("x" * 32_767)
