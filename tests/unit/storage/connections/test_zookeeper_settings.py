"""Connection strings, and settings that contradict themselves."""

from __future__ import annotations

import pytest

from groupkeeper.storage.connections.zookeeper_settings import (
    CREATOR_ONLY,
    AccessRule,
    ZooKeeperSettings,
    parse_connection_string,
)


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk", ("zk:2181",), ""),
        ("zk1:2181,zk2:2182", ("zk1:2181", "zk2:2182"), ""),
        (" zk1:1 , zk2/kafka/eu ", ("zk1:1", "zk2:2181"), "/kafka/eu"),
        ("zk/", ("zk:2181",), ""),
        ("[::1]:2181/a/", ("[::1]:2181",), "/a"),
    ],
)
def test_a_connection_string_names_servers_and_a_chroot(text, hosts, chroot):
    address = parse_connection_string(text)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert parse_connection_string(str(address)) == address


@pytest.mark.parametrize("text", ["", "/a", "zk:0", "zk:70000", "zk:x", "a,,b", "zk//a", "zk/a/.."])
def test_what_is_no_connection_string_is_refused(text):
    with pytest.raises(ValueError, match=r"use host1|chroot"):
        parse_connection_string(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_timeout_ms": 99},
        {"connect_timeout_ms": 0},
        {"max_outstanding": 0},
        {"digest": "ann"},
        {"digest": ":secret"},
        {"access": CREATOR_ONLY},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match=r"must|digest"):
        ZooKeeperSettings(parse_connection_string("zk"), **wrong)


@pytest.mark.parametrize("letters", ["", "x", "rw "])
def test_unknown_permissions_are_refused(letters):
    with pytest.raises(ValueError, match="cdrwa"):
        AccessRule("world", "anyone", letters)


def test_no_secret_is_printed():
    settings = ZooKeeperSettings(parse_connection_string("zk"), digest="ann:secret")
    assert "secret" not in repr(settings)
