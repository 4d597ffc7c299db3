"""The JSON of a registration, both ways."""

from __future__ import annotations

import pytest

from groupkeeper.clients.zookeeper.errors import BrokenNode, InvalidName
from groupkeeper.clients.zookeeper.registration import Registration, SubscriptionPattern

STATIC = SubscriptionPattern.STATIC


def test_it_is_written_as_kazoo_go_writes_it():
    registration = Registration.static(["b", "a"], 1700000000)
    assert registration.encode() == (
        b'{"pattern":"static","subscription":{"a":1,"b":1},"timestamp":1700000000,"version":1}'
    )
    assert Registration.decode("/x", registration.encode()) == registration


@pytest.mark.parametrize("pattern", SubscriptionPattern)
def test_each_pattern_is_read_back(pattern):
    registration = Registration.matching(pattern, "orders.*|Ä", 4, 1)
    assert Registration.decode("/x", registration.encode()) == registration


def test_java_writes_the_timestamp_as_a_text_and_other_fields():
    data = b'{"timestamp":"1416906000000","pattern":"static","subscription":{"t":2},"more":[1]}'
    assert Registration.decode("/x", data) == Registration(STATIC, {"t": 2}, 1416906000000)


def test_go_writes_no_subscription_as_null():
    data = b'{"pattern":"static","subscription":null,"timestamp":1,"version":1}'
    assert Registration.decode("/x", data) == Registration(STATIC, {}, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"7",
        b"\xff",
        b"{}",
        b"[" * 100_000,
        b'{"pattern":"gray_list"}',
        b'{"pattern":"static","subscription":[]}',
        b'{"pattern":"static","subscription":{"t":1.5}}',
        b'{"pattern":"static","subscription":{"t":true}}',
        b'{"pattern":"static","timestamp":"soon"}',
        b'{"pattern":"static","timestamp":1e400}',
        b'{"pattern":"static","timestamp":' + b"9" * 5_000 + b"}",
        b'{"pattern":"static","version":null}',
    ],
)
def test_what_is_no_registration_names_its_node(data):
    with pytest.raises(BrokenNode, match=r"^/consumers/g/ids/a: "):
        Registration.decode("/consumers/g/ids/a", data)


@pytest.mark.parametrize("topics", ["orders", ["a/b"], {"a": -1}, {"a": "1"}, [""], [None]])
def test_what_is_no_list_of_topics_is_refused(topics):
    with pytest.raises(InvalidName):
        Registration.static(topics, 1)


def test_an_empty_expression_is_refused():
    with pytest.raises(InvalidName):
        Registration.matching(SubscriptionPattern.WHITE_LIST, "", 1, 1)
