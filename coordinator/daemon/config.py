"""Every setting of the daemon: its name, default, unit and reason.

``config_load`` reads them from file and environment; ``config.example.toml`` and the table in
``docs/reference/settings.md`` are printed from here.

This file is long because it is a list: every setting with its reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from groupkeeper.coordinator.core.cluster.names import (
    MAX_TOPIC_NAME_LENGTH,
    RESERVED_TOPICS,
    metric_name,
)
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.daemon.group_settings import GroupSettings
from groupkeeper.coordinator.daemon.setting_fields import Section, coordinators_setting
from groupkeeper.coordinator.daemon.upstream_settings import (
    GATEWAY_NODE_ID,
    UpstreamSettings,
    parse_ports,
)
from groupkeeper.coordinator.embed.assignor_plugins import unknown_assignor
from groupkeeper.coordinator.runtime.settings import consumer_settings_error, timeouts_error
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.storage.leases.lives import DEFAULT_LEASE_TTL_MS
from groupkeeper.storage.open import without_password

_SQLITE = "sqlite:///"
_PORT = ServerLimits()
_NAME = r"^[A-Za-z0-9._-]+$"
_MOST_PARTITIONS = CoreLimits().max_partitions


def _check_address(text: str) -> str:
    parse_address(text)
    return text


def _check_advertised(text: str) -> str:
    if text and parse_address(text).port == 0:
        raise ValueError("clients cannot connect to port 0")
    return text


AddressText = Annotated[str, AfterValidator(_check_address)]
AdvertisedText = Annotated[str, AfterValidator(_check_advertised)]


class KafkaSettings(Section):
    """The Kafka port."""

    listen: AddressText = Field(
        default="127.0.0.1:9092",
        description="HOST:PORT to listen on. Loopback by default, because there is no "
        "authentication yet: decide first who may reach it.",
    )
    advertised: AdvertisedText = Field(
        default="",
        description='HOST:PORT that clients get in answers. "": the address that the client '
        "connected to. Set it behind a NAT, a proxy or a load balancer.",
    )
    cluster_id: str = Field(
        default="groupkeeper",
        min_length=1,
        max_length=MAX_TOPIC_NAME_LENGTH,
        pattern=_NAME,
        description="The cluster id in answers to clients. Fixed when a store is created, so that "
        "a daemon never opens the store of another cluster by mistake.",
    )
    node_id: int = Field(
        default=1,
        ge=0,
        le=1_000_000,
        description="The broker id in answers to clients. In gateway mode it is 1000000 unless it "
        "is set, because no broker of the upstream may have it.",
    )
    max_frame_bytes: int = Field(
        default=_PORT.max_frame_bytes,
        ge=1_024,
        le=104_857_600,
        description="The largest request in bytes. A longer one closes its connection. A consumer "
        "sends hundreds of bytes, the leader of 1,000 members half a megabyte. Kafka's own limit "
        "is 100 MiB.",
    )
    max_request_elements: int = Field(
        default=20_000,
        ge=1_000,
        description="The most elements in all arrays of one request, checked while it is read. "
        "This limits how long one request can occupy the event loop. An element that costs more "
        "counts as several: 10 in DescribeConfigs and IncrementalAlterConfigs, 5 in "
        "CreateTopics, 2 in Metadata, CreatePartitions, DeleteTopics, LeaveGroup and "
        "OffsetDelete. Bytes count too: in a request above 1 MiB, each further KiB counts as one "
        "element.",
    )
    max_connections: int = Field(
        default=_PORT.max_connections,
        ge=1,
        description="Connections at the same time. A further one is closed at once. Each costs a "
        "file descriptor and about 10 kB. At start the daemon raises its limit of open files as "
        "far as these need and the hard limit allows.",
    )
    max_connections_per_address: int = Field(
        default=_PORT.max_connections_per_address,
        ge=1,
        description="Connections from one address at the same time, so that one faulty host does "
        "not use up the connections of all others.",
    )
    connections_max_idle_ms: int = Field(
        default=_PORT.connections_max_idle_ms,
        ge=1_000,
        description="Milliseconds after which a silent connection is closed (Kafka's "
        "connections.max.idle.ms). A connection that waits for our answer is not silent.",
    )
    max_waiting_bytes: int = Field(
        default=_PORT.max_waiting_bytes,
        ge=65_536,
        description="Bytes of one connection that may wait: requests that were read and have not "
        "begun, and replies that wait for an earlier reply. Above this we do not read from that "
        "client until fewer bytes wait.",
    )
    max_waiting_requests: int = Field(
        default=_PORT.max_waiting_requests,
        ge=1,
        description="Requests of one connection that have begun and are not answered. Above this "
        "we do not read from that client until some are answered. Clients pipeline a handful of "
        "commits.",
    )
    max_reply_bytes: int = Field(
        default=67_108_864,
        ge=1_048_576,
        description="The largest reply in bytes. A longer one closes its connection, and the log "
        "names the group if one group makes it so large. Without this limit, 40 bytes that ask "
        "for a large group, or a request that names it a thousand times, could use up the memory.",
    )
    max_buffered_bytes: int = Field(
        default=_PORT.max_buffered_bytes,
        ge=33_554_432,
        description="Bytes held for all connections together: incomplete frames, requests that "
        "wait (parked joins too), and replies that clients have not read. Above three quarters "
        "of it, we do not read from the connections that hold the most. Above all of it, the "
        "largest are closed. The process may use a quarter more memory than this, because of gaps "
        "between the parts of replies, and twice kafka.max_reply_bytes for a reply that it makes. "
        "Every other limit is for one connection, and 10,000 connections can hold "
        "10,000 times as much. Two more things each have a limit of this size: the metadata of "
        "all members together, and the assignments of all groups together. A member with more "
        "than 16 KiB of metadata, or a group with more than 256 KiB of assignments, is refused "
        "if more than half of that limit would be used. Up to 1 KiB is never refused.",
    )


class HttpSettings(Section):
    """The HTTP port: /metrics, /healthz and /readyz."""

    listen: AddressText = Field(
        default="127.0.0.1:9308",
        description="HOST:PORT to listen on. Loopback by default, since it shows the names of "
        "your groups.",
    )
    max_connections: int = Field(
        default=200,
        ge=8,
        description="Connections at the same time. For a further one, the connection that has "
        "been silent for longest is closed, so that /healthz and /readyz always answer. Their "
        "file descriptors are reserved in addition to those of the Kafka port.",
    )
    request_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        description="Milliseconds for the head of a request, counted from the connection for the "
        "first request and from the first byte for a later one. The same time again is allowed "
        "until the client has read the answer.",
    )


class StorageSettings(Section):
    """Where groups and offsets are stored."""

    url: str = Field(
        default="sqlite:///groupkeeper.db",
        min_length=1,
        description="memory: (everything is lost at exit), sqlite:///PATH, "
        "postgresql://USER@HOST/DATABASE?schema=groupkeeper (experimental), "
        "zookeeper://HOST:PORT,HOST:PORT/chroot (experimental), consul://HOST:PORT/prefix "
        "(experimental), or kafka://HOST:PORT,HOST:PORT/TOPIC (experimental). A relative path "
        "starts at the working directory; sqlite:////var/lib/... is absolute.",
    )
    password_file: str = Field(
        default="",
        description="File whose first line is the password of the user in url (PostgreSQL, "
        "ZooKeeper, Kafka), or the token for Consul. It is read at the start. Without such a file "
        "the password comes from the environment (PGPASSWORD, ZOOKEEPER_PASSWORD, KAFKA_PASSWORD, "
        "CONSUL_HTTP_TOKEN) or from the url. Only the user of the daemon should be able to read "
        "the file.",
    )
    append_timeout_ms: int = coordinators_setting(
        "append_timeout_ms",
        ge=100,
        description="Milliseconds that one append may take. After that its shards are loaded "
        "again, and their clients are asked to retry (Kafka's offsets.commit.timeout.ms). Must be "
        "below group.min_session_timeout_ms and group.consumer_min_session_timeout_ms, or a slow "
        "disk would evict members.",
    )
    max_group_bytes: int = coordinators_setting(
        "max_group_bytes",
        ge=4_096,
        description="Bytes of one group when it is saved: its offsets with their metadata, and "
        "its members. If a commit would exceed it, the partitions that do not fit are refused "
        "with INVALID_COMMIT_OFFSET_SIZE. If the members alone would exceed it, they are refused "
        "with UNKNOWN_SERVER_ERROR. A group is in memory as a whole and is read at every start. "
        "The default is enough for 100,000 partitions with 500 bytes of metadata each.",
    )


class ClusterSettings(Section):
    """The leases of a store that several processes share: PostgreSQL, ZooKeeper, Consul."""

    lease_ttl_ms: int = Field(
        default=DEFAULT_LEASE_TTL_MS,
        ge=400,
        le=60_000,
        description="Milliseconds after which another process may take over the store from one "
        "that is dead or cut off. After kill -9 the next start waits so long. A process reports "
        "to the store four times within it, and answers no reads if the last report is older "
        "than nine tenths of it.",
    )


class LogSettings(Section):
    """The event log: its sealed segments, and how long they are kept."""

    dir: str = Field(
        default="groupkeeper-log",
        min_length=1,
        description="Directory of the sealed segments, created at start. Stores may share one. A "
        "commit of ten partitions needs about 100 bytes there until retention_minutes have "
        "passed.",
    )
    sealing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="auto: events of a store in SQLite, ZooKeeper or Consul are moved to files in "
        "log.dir. PostgreSQL and topics of Kafka keep them, and a memory: store keeps its newest "
        "100,000 events. on: those of PostgreSQL and memory: are written to files too. off: no "
        "files are written. Then SQLite grows with every commit, and ZooKeeper and Consul keep "
        "only the newest 16 MiB.",
    )
    segment_bytes: int = Field(
        default=67_108_864,
        ge=4_096,
        description="Bytes of JSON after which a segment is closed (Kafka's log.segment.bytes). "
        "The file is a tenth of that or less. gzip cannot be split, so one task of a reader reads "
        "a whole segment.",
    )
    segment_ms: int = Field(
        default=300_000,
        ge=100,
        description="Milliseconds after which a segment is closed, however small it is (Kafka's "
        "log.roll.ms). Reports made from the files are up to this old. 5 minutes are at most 288 "
        "files a day. The first segment after a start is closed after 10 seconds at most.",
    )
    retention_minutes: int = Field(
        default=43_200,
        ge=-1,
        description="Minutes of events that are kept, which is how far back an undo can reach. "
        "Whole UTC days that are older are deleted (Kafka's log.retention.minutes). Their commits "
        "are kept as a snapshot, with the last value of every offset that expired or was deleted. "
        "43200 are 30 days; -1 keeps everything.",
    )
    end_offset_interval_ms: int = coordinators_setting(
        "end_offset_interval_ms",
        description="Milliseconds between two samples of the ends of partitions, from which lag "
        "is computed. Only ends that changed are written. 0: no samples.",
    )


class StaticTopic(Section):
    """A topic of the configuration file."""

    name: str = Field(
        min_length=1,
        max_length=MAX_TOPIC_NAME_LENGTH,
        pattern=_NAME,
        description="The topic's name, by Kafka's rules.",
    )
    partitions: int = Field(
        ge=1,
        le=_MOST_PARTITIONS,
        description="The least number of partitions. An existing topic grows to this and never "
        "shrinks.",
    )
    end_offset: int = Field(
        default=0,
        ge=0,
        description="The least end of each partition; ListOffsets LATEST returns the end. Tools "
        "that reset or restore offsets cannot set an offset above the end. Without this setting "
        "the end is the largest committed offset.",
    )

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, name: str) -> str:
        if name in RESERVED_TOPICS:
            raise ValueError(
                f"{name} is the name of one of Kafka's own topics, which do not exist here"
            )
        return name


class StaticSettings(Section):
    """Topics of the configuration file."""

    auto_create_topics: bool = Field(
        default=False,
        description="true: Metadata creates a topic that a client asks for, with num_partitions. "
        "Off by default, because a misspelt name would become a topic.",
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=_MOST_PARTITIONS,
        description="Partitions of a topic that is created without a number (Kafka's "
        "num.partitions).",
    )
    topics: tuple[StaticTopic, ...] = Field(
        default=(),
        description="The topics that must exist. They are created and grown at start, and never "
        "deleted.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> StaticSettings:
        seen: dict[str, str] = {}
        for topic in self.topics:
            other = seen.setdefault(metric_name(topic.name), topic.name)
            if other == topic.name and sum(t.name == topic.name for t in self.topics) > 1:
                raise ValueError(f"topic {topic.name!r} is listed twice")
            if other != topic.name:
                raise ValueError(f"topic {topic.name!r} collides with topic {other!r} in metrics")
        return self


class OffsetsSettings(Section):
    """Kafka's offsets.* and offset.* settings under Kafka's names."""

    retention_minutes: int = Field(
        default=CoreLimits().offsets_retention_ms // 60_000,
        ge=1,
        description="Minutes after which the offsets of a group without members expire and are "
        "deleted.",
    )
    retention_check_interval_ms: int = coordinators_setting(
        "retention_check_interval_ms",
        description="Milliseconds between two checks for expired offsets.",
    )
    metadata_max_bytes: int = coordinators_setting(
        "offset_metadata_max_bytes",
        description="The longest metadata string of a committed offset. As in Kafka it is counted "
        "in UTF-16 code units, despite the name.",
    )
    topic_num_partitions: int = coordinators_setting(
        "shards",
        description="Shards that groups are spread over, like the partitions of "
        "__consumer_offsets in Kafka. Fixed when a store is created.",
    )


class DaemonSettings(Section):
    """The process as a whole."""

    drain_timeout_ms: int = coordinators_setting(
        "drain_timeout_ms",
        ge=100,
        description="Milliseconds that a clean stop (SIGTERM) may take: to write, to answer "
        "parked requests, and to fold the log. Keep it below the time after which your supervisor "
        "kills the process.",
    )


class LoggingSettings(Section):
    """Log lines on standard error. SIGHUP reads the level again."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error."
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="json, console, or auto: console on a terminal, otherwise JSON."
    )


class MetricsSettings(Section):
    """Which series of groups the page /metrics has."""

    groups: Literal["off", "summary", "partitions"] = Field(
        default="off",
        description="Members, offsets and lag of each group under the names of kafka_exporter. "
        "summary: by group and topic. partitions: also by partition, with two series for each "
        "committed offset and two for each partition of a topic. Off by default, because "
        "Prometheus keeps the series of every group; max_series limits them.",
    )
    max_series: int = Field(
        default=10_000,
        ge=100,
        description="The most series in one scrape, groupkeeper's own included. Further ones are "
        "left out and counted in groupkeeper_metrics_dropped_series_total, so that no client can "
        "flood your Prometheus.",
    )


class Settings(BaseModel):
    """All settings. ``config_load.load_settings`` creates them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()
    storage: StorageSettings = StorageSettings()
    cluster: ClusterSettings = ClusterSettings()
    log: LogSettings = LogSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    static: StaticSettings = StaticSettings()
    group: GroupSettings = GroupSettings()
    offsets: OffsetsSettings = OffsetsSettings()
    daemon: DaemonSettings = DaemonSettings()
    logging: LoggingSettings = LoggingSettings()
    metrics: MetricsSettings = MetricsSettings()

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Settings:
        if self.kafka.max_buffered_bytes < 4 * self.kafka.max_frame_bytes:
            raise ValueError(
                f"kafka.max_buffered_bytes ({self.kafka.max_buffered_bytes}) must be at least four "
                f"times kafka.max_frame_bytes ({self.kafka.max_frame_bytes}), or one request of "
                "that size would be closed beside a few others"
            )
        wrong = timeouts_error(
            ("storage.append_timeout_ms", self.storage.append_timeout_ms),
            ("group.min_session_timeout_ms", self.group.min_session_timeout_ms),
            ("group.max_session_timeout_ms", self.group.max_session_timeout_ms),
        ) or consumer_settings_error(
            self.group, ("storage.append_timeout_ms", self.storage.append_timeout_ms), "group."
        )
        if wrong is not None:
            raise ValueError(wrong)
        problem = self._gateway_problem()
        if problem:
            raise ValueError(problem)
        unknown = unknown_assignor(self.group.consumer_assignors)
        if unknown is not None:
            raise ValueError(f"group.consumer_assignors: {unknown}")
        return self

    @property
    def is_gateway(self) -> bool:
        """True in gateway mode, when an upstream Kafka cluster is configured."""
        return bool(self.upstream.bootstrap)

    @property
    def node_id(self) -> int:
        """The broker id of this process in answers to clients."""
        is_set = "node_id" in self.kafka.model_fields_set
        return GATEWAY_NODE_ID if self.is_gateway and not is_set else self.kafka.node_id

    def _gateway_problem(self) -> str:
        """Return the reason why gateway mode contradicts the other settings; "" if it does not."""
        if not self.is_gateway:
            return ""
        if self.static.topics or self.static.auto_create_topics:
            return (
                "upstream.bootstrap is set, so topics are those of the upstream cluster: remove "
                "the topics of [static] and auto_create_topics"
            )
        ports = parse_ports(self.upstream.ports)
        for name, text in (("kafka", self.kafka.listen), ("http", self.http.listen)):
            if parse_address(text).port in ports:
                found = self.upstream.ports
                return f"upstream.ports ({found}) must not have the port of {name}.listen"
        if parse_address(self.kafka.listen) in self.upstream.addresses:
            return f"upstream.bootstrap has kafka.listen ({self.kafka.listen}): name the brokers"
        return ""


def shown_storage_url(url: str) -> str:
    """Return the URL for people: with an absolute SQLite path, and without a password."""
    if url.startswith(_SQLITE):
        return absolute_storage_url(url)
    return without_password(url)


def absolute_storage_url(url: str) -> str:
    """Return the URL with an absolute SQLite path, resolved from the working directory."""
    if not url.startswith(_SQLITE):
        return url
    return _SQLITE + str(Path(url[len(_SQLITE) :]).absolute())
