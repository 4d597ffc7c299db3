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
        description="HOST:PORT to listen on. By default only this machine can reach it, because "
        "clients are not authenticated yet: before you change it, decide who may reach the port.",
    )
    advertised: AdvertisedText = Field(
        default="",
        description='HOST:PORT that the daemon tells clients to connect to. "": the address to '
        "which the client has connected. Set it if clients come through NAT, a proxy or a load "
        "balancer.",
    )
    cluster_id: str = Field(
        default="groupkeeper",
        min_length=1,
        max_length=MAX_TOPIC_NAME_LENGTH,
        pattern=_NAME,
        description="The cluster id in answers to clients. A store keeps the id with which it "
        "was created, and a daemon with another id refuses it. So a daemon never uses the store "
        "of another cluster by mistake.",
    )
    node_id: int = Field(
        default=1,
        ge=0,
        le=1_000_000,
        description="The broker id in answers to clients. In gateway mode the default is "
        "1000000, because no broker of the upstream may have the same id.",
    )
    max_frame_bytes: int = Field(
        default=_PORT.max_frame_bytes,
        ge=1_024,
        le=104_857_600,
        description="The largest request in bytes. If a client sends a larger one, its "
        "connection is closed. A request of a consumer usually has a few hundred bytes, and a "
        "SyncGroup from the leader of 1,000 members half a megabyte. Kafka's own limit is 100 "
        "MiB.",
    )
    max_request_elements: int = Field(
        default=20_000,
        ge=1_000,
        description="The most elements that all arrays of one request may have together. This "
        "limits how long one request can occupy the event loop. An element that takes longer "
        "counts as several: 10 in DescribeConfigs and IncrementalAlterConfigs, 5 in "
        "CreateTopics, 2 in Metadata, CreatePartitions, DeleteTopics, LeaveGroup and "
        "OffsetDelete. Bytes count too: in a request above 1 MiB, each further KiB counts as one "
        "element.",
    )
    max_connections: int = Field(
        default=_PORT.max_connections,
        ge=1,
        description="The most connections at the same time. One more is closed at once. Each "
        "connection needs a file descriptor and about 10 kB. At start the daemon raises its "
        "limit of open files to what this needs, if the hard limit allows it.",
    )
    max_connections_per_address: int = Field(
        default=_PORT.max_connections_per_address,
        ge=1,
        description="The most connections from one address at the same time, so that one faulty "
        "host does not use up the connections of all others.",
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
        description="The most bytes of one connection that may wait: requests that were read and "
        "have not begun, and replies that wait for an earlier reply. If more wait, the daemon "
        "does not read from that client until fewer wait.",
    )
    max_waiting_requests: int = Field(
        default=_PORT.max_waiting_requests,
        ge=1,
        description="The most requests of one connection that have begun and are not answered. "
        "If there are more, the daemon does not read from that client until some are answered. "
        "Clients usually send a few commits without waiting for the answers.",
    )
    max_reply_bytes: int = Field(
        default=67_108_864,
        ge=1_048_576,
        description="The largest reply in bytes. If a reply would be larger, its connection is "
        "closed. If one group alone makes it so large, the log names this group. Without this "
        "limit, 40 bytes that ask for a large group, or a request that names the group a "
        "thousand times, could use up the memory.",
    )
    max_buffered_bytes: int = Field(
        default=_PORT.max_buffered_bytes,
        ge=33_554_432,
        description="The most bytes held for all connections together: incomplete frames, "
        "requests that wait (parked joins too), and replies that clients have not read. The "
        "limits above are for one connection each, and 10,000 connections can hold 10,000 times "
        "as much. Above three quarters of this limit, the daemon does not read from the "
        "connections that hold the most. Above the whole limit, it closes them. The process may "
        "use a quarter more memory than this, because of gaps between the parts of replies, and "
        "twice kafka.max_reply_bytes for a reply that it makes. The metadata of all members "
        "together has a separate limit of the same size, and so have the assignments of all "
        "groups together. A member with more than 16 KiB of metadata, or a group with more than "
        "256 KiB of assignments, may use only the first half of its limit. Up to 1 KiB is never "
        "refused.",
    )


class HttpSettings(Section):
    """The HTTP port: /metrics, /healthz and /readyz."""

    listen: AddressText = Field(
        default="127.0.0.1:9308",
        description="HOST:PORT to listen on. By default only this machine can reach it, because "
        "the pages show the names of your groups.",
    )
    max_connections: int = Field(
        default=200,
        ge=8,
        description="The most connections at the same time. If there is one more, the connection "
        "that has been silent for longest is closed, so that /healthz and /readyz always answer. "
        "They need file descriptors in addition to those of the Kafka port.",
    )
    request_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        description="Milliseconds in which the head of a request must arrive. For the first "
        "request of a connection they begin when the client connects, and for a later request "
        "when its first byte arrives. The client then has the same time again to read the "
        "answer.",
    )


class StorageSettings(Section):
    """Where groups and offsets are stored."""

    url: str = Field(
        default="sqlite:///groupkeeper.db",
        min_length=1,
        description="The place of the store. One of these: memory: (everything is lost at exit), "
        "sqlite:///PATH, postgresql://USER@HOST/DATABASE?schema=groupkeeper (experimental), "
        "zookeeper://HOST:PORT,HOST:PORT/chroot (experimental), consul://HOST:PORT/prefix "
        "(experimental), kafka://HOST:PORT,HOST:PORT/TOPIC (experimental). A relative path "
        "begins in the working directory. sqlite:////var/lib/... is absolute.",
    )
    password_file: str = Field(
        default="",
        description="File whose first line is the password of the user in url (PostgreSQL, "
        "ZooKeeper, Kafka), or the token for Consul. It is read at the start. Without this file, "
        "the password comes from the environment (PGPASSWORD, ZOOKEEPER_PASSWORD, "
        "KAFKA_PASSWORD, CONSUL_HTTP_TOKEN) or from the url. Only the user of the daemon should "
        "be able to read the file.",
    )
    append_timeout_ms: int = coordinators_setting(
        "append_timeout_ms",
        ge=100,
        description="Milliseconds that one write to the store (an append) may take. If it takes "
        "longer, the groups of the shards in this write are loaded again from the store, and "
        "their clients are asked to retry (Kafka's offsets.commit.timeout.ms). Must be below "
        "group.min_session_timeout_ms and group.consumer_min_session_timeout_ms, or a slow disk "
        "would evict members.",
    )
    max_group_bytes: int = coordinators_setting(
        "max_group_bytes",
        ge=4_096,
        description="The most bytes of one group in the store: its offsets with their metadata, "
        "and its members. If a commit would exceed it, the partitions that do not fit are "
        "refused with INVALID_COMMIT_OFFSET_SIZE. If the members alone would exceed it, they are "
        "refused with UNKNOWN_SERVER_ERROR. A group is in memory as a whole, and is read at "
        "every start. The default is enough for 100,000 partitions with 500 bytes of metadata "
        "each.",
    )


class ClusterSettings(Section):
    """The leases of a store on a server: PostgreSQL, ZooKeeper, Consul, Kafka."""

    lease_ttl_ms: int = Field(
        default=DEFAULT_LEASE_TTL_MS,
        ge=400,
        le=60_000,
        description="For a store on a server (PostgreSQL, ZooKeeper, Consul, topics of Kafka): a "
        "process that uses the store reports to it regularly. If it has not reported for this "
        "many milliseconds, it is dead or cut off, and another process may take over the store. "
        "So after kill -9 the next start waits this long. A process reports four times within "
        "this time. If its last report is older than nine tenths of it, the process answers no "
        "reads.",
    )


class LogSettings(Section):
    """The event log: its sealed segments, and how long they are kept."""

    dir: str = Field(
        default="groupkeeper-log",
        min_length=1,
        description="Directory for the files of the event log (sealed segments). It is created "
        "at start. Several stores may use the same directory. A commit of ten partitions needs "
        "about 100 bytes there, until retention_minutes have passed.",
    )
    sealing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether the daemon moves events from the store to files in log.dir. auto: "
        "it does so for a store in SQLite, ZooKeeper or Consul. PostgreSQL and topics of Kafka "
        "keep their events, and a memory: store keeps its newest 100,000. on: also for "
        "PostgreSQL, Kafka and memory:, and the first two still keep them, too. off: never. Then "
        "SQLite grows with every commit, and ZooKeeper and Consul keep only the newest 16 MiB.",
    )
    segment_bytes: int = Field(
        default=67_108_864,
        ge=4_096,
        description="Bytes of JSON after which a file of the event log (a segment) is closed and "
        "the next one begins (Kafka's log.segment.bytes). The file is compressed to a tenth of "
        "that or less. A reader cannot split a file of gzip, so one task reads a whole segment.",
    )
    segment_ms: int = Field(
        default=300_000,
        ge=100,
        description="Milliseconds after which a segment is closed, however small it is (Kafka's "
        "log.roll.ms). Reports made from the files lack the events of up to this time. 5 minutes "
        "are at most 288 files a day. The first segment after a start is closed after 10 seconds "
        "at most.",
    )
    retention_minutes: int = Field(
        default=43_200,
        ge=-1,
        description="Minutes for which events are kept. An undo can reach back this far. Files "
        "with older whole UTC days are deleted (Kafka's log.retention.minutes). Before that, the "
        "last committed offsets in them are written to the log again as a snapshot, with the "
        "last value of every offset that expired or was deleted. 43200 are 30 days; -1 keeps "
        "everything.",
    )
    end_offset_interval_ms: int = coordinators_setting(
        "end_offset_interval_ms",
        description="Milliseconds between two samples of the end offsets of partitions. Reports "
        "compute the lag from these samples. Only ends that changed are written. 0: no samples.",
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
        description="The number of partitions. If the topic exists and has fewer, it gets more. "
        "If it has more, it keeps them.",
    )
    end_offset: int = Field(
        default=0,
        ge=0,
        description="The end offset that each partition has at least. ListOffsets LATEST returns "
        "the end of a partition. Tools that reset or restore offsets cannot set an offset above "
        "the end. Without this setting, the end is the largest committed offset.",
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
        description="true: if a client asks for the metadata of a topic that does not exist, the "
        "topic is created with num_partitions. Off by default, because a misspelt name would "
        "become a topic.",
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=_MOST_PARTITIONS,
        description="Partitions of a new topic for which no number is given (Kafka's "
        "num.partitions).",
    )
    topics: tuple[StaticTopic, ...] = Field(
        default=(),
        description="Topics that must exist. At start, missing topics are created, and topics "
        "with too few partitions get more. Topics are never deleted.",
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> StaticSettings:
        seen: dict[str, str] = {}
        for topic in self.topics:
            shown = metric_name(topic.name)
            other = seen.get(shown)
            if other == topic.name:
                raise ValueError(f"topic {topic.name!r} is listed twice")
            if other is not None:
                raise ValueError(f"topic {topic.name!r} collides with topic {other!r} in metrics")
            seen[shown] = topic.name
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
        description="The longest metadata string of a committed offset. As in Kafka, the length "
        "is counted in UTF-16 code units and not in bytes.",
    )
    topic_num_partitions: int = coordinators_setting(
        "shards",
        description="The number of shards. Each group belongs to one shard, as a group in Kafka "
        "belongs to one partition of __consumer_offsets. It cannot be changed after a store is "
        "created.",
    )


class DaemonSettings(Section):
    """The process as a whole."""

    drain_timeout_ms: int = coordinators_setting(
        "drain_timeout_ms",
        ge=100,
        description="Milliseconds that a clean stop (SIGTERM) may take. In this time the daemon "
        "finishes its writes, answers requests that wait for a rebalance, and tidies its store "
        "(folds the log), so that the next start is fast. Keep it below the time after which "
        "your supervisor kills the process.",
    )


class LoggingSettings(Section):
    """Log lines on standard error. SIGHUP reads the level again."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="The least important lines that are logged: debug, info, warning or error.",
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto",
        description="The form of a log line. json, console (for people), or auto: console on a "
        "terminal, otherwise json.",
    )


class MetricsSettings(Section):
    """Which series of groups the page /metrics has."""

    groups: Literal["off", "summary", "partitions"] = Field(
        default="off",
        description="Whether /metrics shows members, offsets and lag of each group, under the "
        "names of kafka_exporter. summary: by group and topic. partitions: also by partition, "
        "with two series for each committed offset and two for each partition of a topic. Off by "
        "default, because Prometheus keeps the series of every group. max_series limits them.",
    )
    max_series: int = Field(
        default=10_000,
        ge=100,
        description="The most series in one scrape, including groupkeeper's own. Further series "
        "are left out, and counted in groupkeeper_metrics_dropped_series_total. So no client can "
        "flood your Prometheus with groups.",
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
    """Return the URL with an absolute path if it is one of SQLite. A relative path begins in the
    working directory. Other URLs are not changed.
    """
    if not url.startswith(_SQLITE):
        return url
    return _SQLITE + str(Path(url[len(_SQLITE) :]).absolute())
