"""What a store in Consul writes under keys: names, URLs, ranges of entries, and transactions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.storage.backends.consul.keys import (
    PART_BYTES,
    StoreKeys,
    is_entry,
    row_of,
    stored_value,
    value_of,
)
from groupkeeper.storage.backends.consul.names import (
    MAX_NAME_CHARS,
    UNUSUAL,
    is_hashed,
    key_name,
)
from groupkeeper.storage.backends.consul.operations import (
    MAX_BODY_BYTES,
    Operation,
    check,
    write,
)
from groupkeeper.storage.backends.consul.url import parse_url
from groupkeeper.storage.backends.consul.values import VALUE_PART_BYTES, ConsulBatch, Parts
from groupkeeper.storage.backends.key_value.escaping import escaped_name, plain_name
from groupkeeper.storage.connections.consul import MOST_OPERATIONS, ConsulEntry

KEYS = StoreKeys("kafka")


@pytest.mark.parametrize("name", ["billing", "a.b-c_d", "orders:1", "x@y", "~"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert key_name(name) == name


@given(st.text())
def test_every_name_comes_back_from_its_key_or_its_value(name: str) -> None:
    assert plain_name(escaped_name(name, UNUSUAL)) == name
    key = KEYS.value(3, True, name)
    last = key.rpartition("/")[2]
    assert last.isascii()
    assert last not in ("", ".", "..")
    assert value_of(3, True, key, stored_value(key, name, b"{}")) == (3, True, name, b"{}")


@given(st.text(alphabet="%2Ea./-", max_size=6), st.text(alphabet="%2Ea./-", max_size=6))
def test_no_two_names_have_the_same_key(one: str, other: str) -> None:
    assert (key_name(one) == key_name(other)) == (one == other)


def test_a_long_name_is_hashed_and_no_other_name_looks_like_a_hash() -> None:
    name = "\0" * (MAX_NAME_CHARS // 3 + 1)
    assert is_hashed(key_name(name))
    assert key_name(name) != key_name(name + "\0")
    assert not is_hashed(key_name(key_name(name)))
    assert not is_hashed(key_name("x" * MAX_NAME_CHARS))


@given(st.integers(0, 3_000), st.integers(0, 3_000), st.integers(1, 3_000))
def test_the_beginnings_of_rows_match_all_rows_of_a_range_and_none_after_it(
    after: int, more: int, row: int
) -> None:
    last = after + more
    begins = [*KEYS.rows("life", after, last)]
    is_matched = any(KEYS.entry("life", row, 1).startswith(each) for each in begins)
    if after < row <= last:
        assert is_matched
    if row > last:
        assert not is_matched


def test_the_last_entries_of_a_long_journal_need_few_operations() -> None:
    assert len([*KEYS.rows("life", 7_654_300, 7_654_364)]) <= 30


def test_a_part_of_an_entry_is_beside_it() -> None:
    keys = [KEYS.entry("life", 12, part) for part in range(3)]
    assert [(row_of(key), is_entry(key)) for key in keys] == [(12, True), (12, False), (12, False)]


def test_a_url_names_an_agent_a_prefix_and_a_datacenter() -> None:
    url = parse_url("consul://a/kafka/b?dc=east", {"CONSUL_HTTP_TOKEN": "secret"})
    assert (url.address, url.prefix, url.datacenter) == ("a:8500", "kafka/b", "east")
    assert (url.token, url.name, url.tls()) == ("secret", "consul://a:8500/kafka/b", None)
    assert parse_url("consul://[::1]:8501?tls=on", {}).address == "[::1]:8501"
    assert parse_url("consul://a?tls=on", {}).tls() is not None


def test_a_url_of_an_agent_alone_is_enough() -> None:
    url = parse_url("consul://a:1", {})
    assert (url.address, url.prefix, url.token) == ("a:1", "groupkeeper", None)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("consul://", "is not HOST:PORT"),
        ("consul://a,b", "is not HOST:PORT of one agent"),
        ("consul://a/x//y", "no empty"),
        ("consul://a/../y", "no empty"),
        ("consul://a:x", "Port"),
        ("consul://a?token=x", "'token' is not known; use mirror, dc, tls"),
        ("consul://a?tls=maybe", "tls is 'maybe'; use on or off"),
        ("consul://:secret@a", "has no user"),
        ("zookeeper://a", "use consul://"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_right(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        parse_url(url, {})
    assert "secret" not in str(refused.value)


class FakeConsul:
    """Executes every transaction, and notes it."""

    def __init__(self) -> None:
        self.transactions: list[list[Operation]] = []
        self.index = 7

    async def execute(self, *operations: Operation) -> tuple[ConsulEntry, ...]:
        body = [{"KV": {**each, "Value": "x" * _base64(each)}} for each in operations]
        assert len(operations) <= MOST_OPERATIONS
        assert len(json.dumps(body)) <= MAX_BODY_BYTES
        for each in operations:
            if each["Verb"] == "cas":
                assert each["Index"] == self.index
        self.index += 1
        self.transactions.append([*operations])
        return tuple(ConsulEntry(str(each["Key"]), b"", self.index, None) for each in operations)


def _base64(operation: Operation) -> int:
    return (len(operation.get("Value", b"")) + 2) // 3 * 4


def a_batch(consul: Any) -> ConsulBatch:
    return ConsulBatch(consul, check("life", 3), "mark", consul.index)


async def test_a_batch_is_sent_in_transactions_that_consul_accepts() -> None:
    consul = FakeConsul()
    batch = a_batch(consul)
    for number in range(150):
        await batch.add(write(f"k{number}", b"x" * (number * 100)))
    for _ in range(3):
        await batch.add(write('"\u00e9' * 100, b"x" * PART_BYTES))
    await batch.send()
    written = [each["Key"] for sent in consul.transactions for each in sent[2:]]
    assert written[:150] == [f"k{number}" for number in range(150)]
    assert len(written) == 153
    assert all(
        [each["Key"] for each in sent[:2]] == ["life", "mark"] for sent in consul.transactions
    )


async def test_no_two_transactions_write_the_same_mark() -> None:
    """Consul would keep its index, and then a late transaction would still be executed."""
    consul = FakeConsul()
    batch = a_batch(consul)
    for _ in range(3):
        await batch.add(write("k", b"x"))
        await batch.send()
    marks = [sent[1]["Value"] for sent in consul.transactions]
    assert len(set(marks)) == 3


async def test_the_parts_of_a_value_are_written_before_it_and_go_with_it() -> None:
    consul = FakeConsul()
    parts = Parts(KEYS, [])
    key = KEYS.value(0, True, "g")
    batch = a_batch(consul)
    await parts.replace(batch, [(key, b"x" * (4 * VALUE_PART_BYTES))])
    await batch.send()
    first = [each for sent in consul.transactions for each in sent[2:]]
    assert [each["Verb"] for each in first] == ["set"] * 5
    assert first[-1]["Key"] == key
    assert KEYS.whole_of(first[0]["Key"]) == (key, first[-1]["Value"].split()[1].decode())
    consul.transactions.clear()
    await parts.replace(batch, [(key, b"small")])
    await batch.send()
    assert [(each["Verb"], each["Key"]) for each in consul.transactions[0][2:]] == [
        ("set", key),
        ("delete-tree", first[0]["Key"].rpartition(".")[0] + "."),
    ]
    consul.transactions.clear()
    found = Parts(KEYS, [first[0]["Key"], first[1]["Key"]])
    await found.replace(batch, [(key, None)])
    await batch.send()
    assert [each["Verb"] for each in consul.transactions[0][2:]] == ["delete", "delete-tree"]
