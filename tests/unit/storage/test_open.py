"""Which storage a URL names."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import CanBeMoved, LoadsGroups, StoreRefused
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.open import open_storage, rows_of

INSTALLS = rf"run: {re.escape(sys.executable)} -m pip install .*\[{{}}\]"
"""What a message advises, for an extra."""


def test_memory() -> None:
    assert isinstance(open_storage("memory:", append_timeout_ms=5_000), MemoryOffsetStorage)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///groupkeeper.db", Path.cwd() / "groupkeeper.db"),
        ("sqlite:///var/a%20b.db", Path.cwd() / "var" / "a%20b.db"),
        ("sqlite:////srv/groupkeeper.db", Path("/srv/groupkeeper.db")),
    ],
)
def test_sqlite_paths_are_relative_with_three_slashes_and_absolute_with_four(
    url: str, path: Path
) -> None:
    storage = open_storage(url, append_timeout_ms=5_000)
    assert isinstance(storage, SqliteOffsetStorage)
    assert storage.path == path.resolve()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgre://me:hush@host/db", "'postgre://***@host/db' names no storage"),
        ("redis://hush@host", "'redis://***@host' names no storage"),
        ("mysql:me:hush@host/db", "'mysql:***@host/db' names no storage"),
        ("me:hush@host/db", "'me:***@host/db' names no storage"),
        ("//me:hu@sh@host/db", "'//me:***@host/db' names no storage"),
        ("mysql://host/db?user=me&pwd=hush", "'mysql://host/db?user=me&pwd=***' names no storage"),
        ("mysql://host/db?authToken=hush#a", "authToken=***#a' names no storage"),
        ("postgresql:me:hush@host/db", "use postgresql://USER@HOST/DATABASE"),
        ("postgresql://me:hush@[host/db", "Invalid IPv6 URL"),
    ],
)
def test_a_url_that_names_no_store_is_refused_without_its_password(url: str, shown: str) -> None:
    with pytest.raises(StoreRefused, match=re.escape(shown)) as refusal:
        open_storage(url, append_timeout_ms=5_000)
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "a.db",
        "sqlite:",
        "sqlite:///",
        "sqlite:////",
        "sqlite:///.",
        "sqlite:///\0.db",
        "sqlite://a.db",
    ],
)
def test_what_names_no_storage_is_refused_with_what_does(url: str) -> None:
    known = (
        "use sqlite:///PATH, postgresql://HOST/DATABASE, zookeeper://HOST:PORT, "
        "consul://HOST:PORT, kafka://HOST:PORT/TOPIC or memory:"
    )
    with pytest.raises(StoreRefused, match=f"names no storage; {known}"):
        open_storage(url, append_timeout_ms=5_000)


@pytest.mark.parametrize("url", ["postgresql:", "postgresql://host", "postgres://host/"])
def test_a_url_of_postgres_names_its_database(url: str) -> None:
    with pytest.raises(StoreRefused, match=r"use postgresql://USER@HOST/DATABASE"):
        open_storage(url, append_timeout_ms=5_000)


def test_without_its_package_postgres_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupkeeper.storage.open.find_spec", lambda name: None)
    with pytest.raises(StoreRefused, match=INSTALLS.format("postgres")):
        open_storage("postgresql://host/db", append_timeout_ms=5_000)


def test_zookeeper_is_a_store_that_several_processes_share() -> None:
    storage = open_storage("zookeeper://a:2181,b:2181/chroot?mirror=off", append_timeout_ms=5_000)
    assert storage.limits.shared


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("zookeeper:", "is not HOST:PORT"),
        ("zookeeper://a?mirror=maybe", "use on or off"),
        ("zookeeper://me@a", "set ZOOKEEPER_PASSWORD"),
    ],
)
def test_a_wrong_url_of_zookeeper_says_what_is_right(url: str, words: str) -> None:
    with pytest.raises(StoreRefused, match=rf"storage\.url: .*{words}"):
        open_storage(url, append_timeout_ms=5_000)


def test_without_its_package_zookeeper_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupkeeper.storage.open.find_spec", lambda name: None)
    with pytest.raises(StoreRefused, match=INSTALLS.format("zookeeper")):
        open_storage("zookeeper://host", append_timeout_ms=5_000)


def test_with_sealing_both_seal(tmp_path: Path) -> None:
    seal = SealSettings(directory=tmp_path / "log")
    on_disk = open_storage(f"sqlite:///{tmp_path}/a.db", append_timeout_ms=5_000, seal=seal)
    assert isinstance(on_disk, SealedStorage)
    assert isinstance(on_disk.store, SqliteOffsetStorage)
    assert isinstance(on_disk, CanBeMoved)
    in_memory = open_storage("memory:", append_timeout_ms=5_000, seal=seal)
    assert isinstance(in_memory, SealedStorage)
    assert isinstance(in_memory.store, MemoryOffsetStorage)
    assert not isinstance(in_memory, CanBeMoved | LoadsGroups), "what the store has not"


@pytest.mark.parametrize("store", ["memory:", "kafka://host", "sqlite:///"])
def test_rows_that_nobody_else_can_read_are_refused(store: str) -> None:
    with pytest.raises(StoreRefused):
        rows_of(store)


def test_consul_is_a_store_that_several_processes_share() -> None:
    storage = open_storage("consul://a:8500/prefix", append_timeout_ms=5_000)
    assert storage.limits.shared


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("consul:", "is not HOST:PORT"),
        ("consul://a?mirrors=off", "'mirrors' is not known; use mirror, dc, tls"),
        ("consul://a?mirror=a//b", "must have no empty"),
        ("consul://me@a", "set storage.password_file or CONSUL_HTTP_TOKEN"),
        ("consul://a?ca_file=/nowhere.pem", "the files of TLS cannot be read"),
    ],
)
def test_a_wrong_url_of_consul_says_what_is_right(url: str, words: str) -> None:
    with pytest.raises(StoreRefused, match=words):
        open_storage(url, append_timeout_ms=5_000)


def test_without_its_package_consul_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupkeeper.storage.open.find_spec", lambda package: None)
    with pytest.raises(StoreRefused, match=INSTALLS.format("consul")):
        open_storage("consul://host", append_timeout_ms=5_000)


def test_a_topic_of_kafka() -> None:
    storage = open_storage("kafka://a,b:9093/groups", append_timeout_ms=5_000)
    assert isinstance(storage, KafkaTopicStorage)
    assert not storage.limits.one_lane


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka://host", "use kafka://HOST:PORT,HOST:PORT/TOPIC"),
        ("kafka:///topic", "use kafka://HOST:PORT,HOST:PORT/TOPIC"),
        ("kafka://a:x/t", "'a:x' is not HOST:PORT"),
        ("kafka://a,b:99999/t", "'b:99999' is not HOST:PORT"),
        ("kafka://::1/t", "is not HOST:PORT"),
        ("kafka://host/a/b", "'a/b' is no name of a topic"),
        ("kafka://host/t?tls=maybe", "parameter tls is 'maybe'; use on or off"),
        ("kafka://host/t?sasl=X", "use PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("kafka://host/t?replication=0", "parameter replication is '0'"),
        ("kafka://host/t?x=1", "parameter 'x' is not known; use sasl, tls"),
        ("kafka://me@host/t", "set KAFKA_PASSWORD to the password of user 'me'"),
    ],
)
def test_a_url_of_kafka_that_cannot_be_used_is_refused(url: str, words: str) -> None:
    with pytest.raises(StoreRefused, match=f"^storage.url: .*{words}") as refusal:
        open_storage(url, append_timeout_ms=5_000)
    assert "\n" not in str(refusal.value)


def test_a_store_in_kafka_is_sealed_only_if_that_is_asked_for() -> None:
    settings = SealSettings(directory=Path("log"))
    url = "kafka://host/t"
    left = open_storage(url, append_timeout_ms=5_000, seal=settings, seal_if_possible=True)
    assert not isinstance(left, SealedStorage)
    assert isinstance(open_storage(url, append_timeout_ms=5_000, seal=settings), SealedStorage)
