"""The settings of gateway mode, and the check that they fit together."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from groupkeeper.coordinator.core.cluster.names import RESERVED_TOPICS, topic_name_error
from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.setting_fields import Section

GATEWAY_NODE_ID: Final = 1_000_000
"""The value of ``kafka.node_id`` in gateway mode, unless it is set. Clusters usually give their
brokers much smaller ids."""

_TOPICS_OF_BROKERS: Final = RESERVED_TOPICS | {"__transaction_state", "__share_group_state"}


_NEEDS: Final = (
    ("user", "sasl"),
    ("password_file", "sasl"),
    ("ca_file", "tls"),
    ("cert_file", "tls"),
    ("key_file", "cert_file"),
)
"""Pairs of settings. The first has no effect without the second."""


def _check_bootstrap(text: str) -> str:
    for each in filter(None, map(str.strip, text.split(","))):
        if parse_address(each).port == 0:
            raise ValueError(f"{each!r} has no port")
    return text


def _check_ports(text: str) -> str:
    parse_ports(text)
    return text


def parse_ports(text: str) -> range:
    """Return the ports of ``FIRST-LAST``, or of one number. Raises ValueError if the text has
    another form, or a port is not within 1 and 65535.
    """
    first, dash, last = text.partition("-")
    numbers = [first, last if dash else first]
    if not all(each.isascii() and each.isdigit() for each in numbers):
        raise ValueError(f"{text!r} is not FIRST-LAST, such as 9100-9199")
    low, high = map(int, numbers)
    if not 1 <= low <= high <= 65_535:
        raise ValueError(f"{text!r}: ports are numbers from 1 to 65535, the smaller one first")
    return range(low, high + 1)


def _check_journal_topic(text: str) -> str:
    if problem := topic_name_error(text):
        raise ValueError(problem)
    if text in _TOPICS_OF_BROKERS:
        raise ValueError(f"{text} belongs to the brokers")
    return text


class UpstreamSettings(Section):
    """Gateway mode: a Kafka cluster behind us, whose clients use our address."""

    bootstrap: Annotated[str, AfterValidator(_check_bootstrap)] = Field(
        default="",
        description="HOST:PORT,HOST:PORT of some brokers of the upstream: the Kafka cluster "
        'behind groupkeeper. "": no gateway mode. In gateway mode, requests for messages pass to '
        "the brokers, and groupkeeper has the groups and offsets. The topics are those of the "
        "upstream, so [static] must have none.",
    )
    ports: Annotated[str, AfterValidator(_check_ports)] = Field(
        default="9100-9199",
        description="FIRST-LAST. Each broker of the upstream gets one port of this range, on the "
        "host of kafka.listen, and keeps it over restarts. Clients must be able to reach all of "
        "these ports.",
    )
    advertised_host: str = Field(
        default="",
        description='The host on which clients reach these ports. "": that of kafka.advertised, '
        "or else the address to which the client has connected.",
    )
    connect_timeout_ms: int = Field(
        default=5_000,
        ge=100,
        le=60_000,
        description="Milliseconds in which a connection to a broker must be ready, including TLS "
        "and the login.",
    )
    metadata_refresh_ms: int = Field(
        default=5_000,
        ge=100,
        le=600_000,
        description="Milliseconds between two requests for the brokers and topics of the upstream.",
    )
    window_bytes: int = Field(
        default=262_144,
        ge=262_144,
        le=67_108_864,
        description="The most bytes of one client connection that may wait in each direction. A "
        "larger request or reply passes in parts. If more bytes wait, the daemon does not read "
        "from their sender. They count towards kafka.max_buffered_bytes.",
    )
    max_frame_bytes: int = Field(
        default=104_857_600,
        ge=1_024,
        le=268_435_456,
        description="The longest request or reply, in bytes, that passes between clients and "
        "brokers (Kafka's socket.request.max.bytes). It is not held in memory as a whole. "
        "Requests that groupkeeper reads itself, such as those for groups, have the limit "
        "kafka.max_frame_bytes.",
    )
    journal_topic: Annotated[str, AfterValidator(_check_journal_topic)] = Field(
        default="__groupkeeper_transactions",
        description="A topic of the upstream, in which groupkeeper records the offsets of a "
        "transaction until the transaction ends. It is created with a partition for each shard, "
        "and hidden from clients. If several gateways are in front of one cluster, each needs "
        "another name.",
    )
    tls: bool = Field(
        default=False, description="true: groupkeeper's connections to the brokers use TLS."
    )
    ca_file: str = Field(
        default="",
        description="File with the certificates (PEM) with which groupkeeper checks the "
        'certificates of the brokers. "": those of the system.',
    )
    cert_file: str = Field(
        default="",
        description='File with the certificate (PEM) that groupkeeper shows to the brokers. "": '
        "it shows none.",
    )
    key_file: str = Field(
        default="",
        description="File with the key (PEM) of that certificate, if it is not in cert_file.",
    )
    sasl: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="",
        description='The SASL mechanism with which groupkeeper logs in at the brokers. "": it '
        "does not log in.",
    )
    identity: Literal["ours", "client"] = Field(
        default="ours",
        description="With whose rights the brokers answer clients. ours: those of groupkeeper's "
        "own login. client: each client logs in with SASL, and the brokers check it. "
        "groupkeeper's own connections then still need sasl. In both cases the brokers' ACLs "
        "about groups do not apply.",
    )
    user: str = Field(default="", description="The user with which groupkeeper logs in.")
    password_file: str = Field(
        default="",
        description="File whose first line is the password of user. Only the user of the daemon "
        "should be able to read it.",
    )

    adopt: bool = Field(
        default=False,
        description="true: if a client asks for a group that groupkeeper does not know, "
        "groupkeeper looks for the group in the upstream and copies its offsets. While the group "
        "has members in the upstream, its clients here must wait.",
    )
    max_remembered_groups: int = Field(
        default=100_000,
        ge=0,
        le=1_000_000,
        description="How many groups that were deleted or have expired here are remembered, so "
        "that adopt does not copy them again. If there are more, the oldest are forgotten. An id "
        "of more than 128 characters counts as several groups. 100,000 need about 20 MB of "
        "memory. The upstream deletes the offsets of such groups, too, after its "
        "offsets.retention.minutes.",
    )
    mirror: bool = Field(
        default=False,
        description="true: groupkeeper also commits the newest offset of each partition in the "
        "upstream, within about a second. So you can go back to the groups of the upstream.",
    )

    @model_validator(mode="after")
    def _login_is_complete(self) -> UpstreamSettings:
        if self.sasl and not (self.user and self.password_file):
            raise ValueError("upstream.sasl needs upstream.user and upstream.password_file")
        for name, needed in _NEEDS:
            if getattr(self, name) and not getattr(self, needed):
                raise ValueError(
                    f"upstream.{name} is set, and has no effect without upstream.{needed}: set "
                    f"upstream.{needed} too, or remove upstream.{name}"
                )
        if self.identity == "client" and not self.sasl:
            raise ValueError(
                'upstream.identity = "client" needs upstream.sasl: brokers that authenticate '
                "clients also ask for a login of our own connections"
            )
        return self

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        texts = filter(None, map(str.strip, self.bootstrap.split(",")))
        return tuple(parse_address(text) for text in texts)
