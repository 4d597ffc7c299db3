"""The URL of a store in a topic of Kafka (pure).

``kafka://USER@HOST:PORT,HOST:PORT/topic?sasl=SCRAM-SHA-512&tls=on&ca_file=...&replication=3``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

PASSWORD_VARIABLE: Final = "KAFKA_PASSWORD"  # noqa: S105 - its name
"""The environment variable with the password of the user in the URL."""

_FORM: Final = "use kafka://HOST:PORT,HOST:PORT/TOPIC"
_KNOWN: Final = ("sasl", "tls", "ca_file", "cert_file", "key_file", "replication")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HAS_PORT: Final = re.compile(r":[^\]]*$")
_SERVER: Final = re.compile(r"[^:\s]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")
_MOST_PORT: Final = 65_535
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,240}")
"""A topic name that Kafka also accepts after the longest of our suffixes is added."""


class KafkaTopicUrl(NamedTuple):
    """The address of a store."""

    name: str
    """The URL for messages, without a user and without parameters."""
    servers: tuple[str, ...]
    """HOST:PORT of the brokers to ask first."""
    topic: str
    user: str | None
    password: str | None
    mechanism: str
    has_tls: bool
    files: Mapping[str, str]
    """The files for TLS: ``ca_file``, ``cert_file``, ``key_file``."""
    replication: int | None
    """The number of replicas of topics that we create. None: one on each broker, at most three."""

    @property
    def cluster_topic(self) -> str:
        """The name of the topic that has the lives, the leases, the topics and the configs."""
        return f"{self.topic}-cluster"

    @property
    def events_topic(self) -> str:
        """The name of the topic that has the events of all shards."""
        return f"{self.topic}-events"


def parse_url(url: str, environment: Mapping[str, str]) -> KafkaTopicUrl:
    """Split a URL into its parts. Raises ValueError if it is no URL of a topic.

    The password comes from the environment, or else from the URL.
    """
    parts = urlsplit(url)
    topic = parts.path.strip("/")
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, written = credentials.partition(":")
    servers = tuple(
        each if _HAS_PORT.search(each) else f"{each}:9092" for each in hosts.split(",") if each
    )
    if parts.scheme != "kafka" or not servers or not topic:
        raise ValueError(_FORM)
    for server in servers:
        if not _SERVER.fullmatch(server) or int(server.rpartition(":")[2]) > _MOST_PORT:
            raise ValueError(f"{server!r} is not HOST:PORT; {_FORM}")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(f"{topic!r} is no name of a topic; {_FORM}")
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [key for key in asked if key not in _KNOWN]:
        raise ValueError(f"parameter {unknown[0]!r} is not known; use {', '.join(_KNOWN)}")
    password = environment.get(PASSWORD_VARIABLE) or unquote(written)
    if user and not password:
        raise ValueError(f"set {PASSWORD_VARIABLE} to the password of user {unquote(user)!r}")
    files = {key: value for key, value in asked.items() if key.endswith("_file")}
    return KafkaTopicUrl(
        f"kafka://{','.join(servers)}/{topic}",
        servers,
        topic,
        unquote(user) or None,
        password or None,
        _one_of(asked, "sasl", _MECHANISMS, "PLAIN"),
        _one_of(asked, "tls", ("on", "off"), "on" if files else "off") == "on",
        files,
        _replication(asked.get("replication")),
    )


def _one_of(asked: Mapping[str, str], key: str, known: tuple[str, ...], default: str) -> str:
    found = asked.get(key, default)
    if found not in known:
        raise ValueError(f"parameter {key} is {found!r}; use {' or '.join(known)}")
    return found


def _replication(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise ValueError(f"parameter replication is {text!r}; use a number of brokers")
    return int(text)
