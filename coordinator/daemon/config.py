"""Every setting of the daemon: its name, default, unit and reason.

``config_load`` reads them from file and environment; ``config.example.toml`` and the table in
``docs/reference/settings.md`` are printed from here.

Long because it is a list: every setting with its reason.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from groupkeeper.coordinator.core.bounds import bounds_of
from groupkeeper.coordinator.core.cluster.names import RESERVED_TOPICS, metric_name
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.daemon.address import parse_address
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig, timeouts_error
from groupkeeper.coordinator.server.limits import ServerLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

ENV_PREFIX = "GROUPKEEPER_"
ENV_DELIMITER = "__"
_SQLITE = "sqlite:///"
_PORT = ServerLimits()
_BOUNDS = bounds_of(CoordinatorConfig)
_DEFAULTS = {each.name: each.default for each in fields(CoordinatorConfig)}
_COORDINATORS = "coordinators_name"


def _check_address(text: str) -> str:
    parse_address(text)
    return text


def _check_advertised(text: str) -> str:
    if text and parse_address(text).port == 0:
        raise ValueError("port 0 cannot be told to clients")
    return text


AddressText = Annotated[str, AfterValidator(_check_address)]
AdvertisedText = Annotated[str, AfterValidator(_check_advertised)]


def _coordinators(name: str, *, description: str, **own: int) -> Any:
    """Declare a setting that the coordinator has as well, under ``name``: with the default and
    bounds that it has there.

    ``own`` replaces those that are different in a daemon.
    """
    least, most = _BOUNDS[name]
    declared: dict[str, Any] = {"default": _DEFAULTS[name], "ge": least, "le": most, **own}
    return Field(description=description, json_schema_extra={_COORDINATORS: name}, **declared)


class _Section(BaseModel):
    # built on first use, as a part of Settings: otherwise a start builds it twice
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class KafkaSettings(_Section):
    """The Kafka port."""

    listen: AddressText = Field(
        default="127.0.0.1:9092",
        description="HOST:PORT to listen on. Loopback until you decide who may reach it: "
        "there is no authentication yet.",
    )
    advertised: AdvertisedText = Field(
        default="",
        description='HOST:PORT told to clients; "" = the address that the client came in on. '
        "Set it behind a NAT, a proxy or a load balancer.",
    )
    cluster_id: str = Field(
        default="groupkeeper",
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="The cluster id told to clients. Fixed when a store is created, so that a "
        "daemon is never pointed at another cluster's store by mistake.",
    )
    node_id: int = Field(
        default=1,
        ge=0,
        le=1_000_000,
        description="Our broker id in Metadata.",
    )
    max_frame_bytes: int = Field(
        default=_PORT.max_frame_bytes,
        ge=1_024,
        le=104_857_600,
        description="Bytes of one request; a longer one closes its connection. A consumer sends "
        "hundreds of bytes, the leader of 1,000 members half a megabyte; Kafka itself takes 100 "
        "MiB.",
    )
    max_request_elements: int = Field(
        default=20_000,
        ge=1_000,
        description="Elements of all arrays of one request together, checked while it is read. "
        "Bounds the time for which one request can hold the loop; where an element costs more it "
        "counts as several: 10 in DescribeConfigs and IncrementalAlterConfigs, 5 in CreateTopics, "
        "2 in Metadata, CreatePartitions, DeleteTopics, LeaveGroup and OffsetDelete. Bytes are "
        "charged as well: of a request above 1 MiB each further KiB counts as one element.",
    )
    max_connections: int = Field(
        default=_PORT.max_connections,
        ge=1,
        description="Connections at the same time; a further one is closed at once. Each costs a "
        "file descriptor and about 10 kB, and RLIMIT_NOFILE is checked against it at start.",
    )
    max_connections_per_address: int = Field(
        default=_PORT.max_connections_per_address,
        ge=1,
        description="Connections from one address at the same time, so that one runaway host "
        "does not take the places of all others.",
    )
    connections_max_idle_ms: int = Field(
        default=_PORT.connections_max_idle_ms,
        ge=1_000,
        description="Milliseconds after which a silent connection is closed (Kafka's "
        "connections.max.idle.ms). One that waits for an answer of ours is not idle.",
    )
    max_waiting_bytes: int = Field(
        default=_PORT.max_waiting_bytes,
        ge=65_536,
        description="Bytes of one connection that may wait, requests read and replies not yet "
        "sent; beyond it we stop reading from that peer until it takes what it asked for.",
    )
    max_waiting_requests: int = Field(
        default=_PORT.max_waiting_requests,
        ge=1,
        description="Requests of one connection that may be begun and not answered; beyond it we "
        "stop reading from that peer until answers are out. Clients pipeline a handful of commits.",
    )
    max_reply_bytes: int = Field(
        default=67_108_864,
        ge=1_048_576,
        description="Bytes of one reply; a longer one closes its connection, and the log names the "
        "group where one makes it so large. A request of 40 bytes for a large group, or one that "
        "names it a thousand times, would else take the memory of all.",
    )
    max_buffered_bytes: int = Field(
        default=_PORT.max_buffered_bytes,
        ge=33_554_432,
        description="Bytes held for all connections together: frames that are not complete, "
        "requests that wait (parked joins too), replies that are not taken. Above three quarters "
        "of it those that hold most are read no further, above it the largest are closed. Every "
        "other limit is one connection's, and 10,000 of them can hold 10,000 times as much. "
        "Metadata of members may take as much again, that above 16 KiB half of it; so may the "
        "assignments of all groups, those above 256 KiB half of it. Up to 1 KiB is never refused.",
    )


class HttpSettings(_Section):
    """/metrics, /healthz and /readyz."""

    listen: AddressText = Field(
        default="127.0.0.1:9308",
        description="HOST:PORT to listen on. Loopback by default: it tells the names of your "
        "groups.",
    )
    max_connections: int = Field(
        default=200,
        ge=8,
        description="Connections at the same time; for a further one the connection that has been "
        "silent for longest is closed, so that /healthz and /readyz always answer. File "
        "descriptors are kept for the Kafka port beside these.",
    )
    request_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        description="Milliseconds from the connection to the end of the first request's head, from "
        "the first byte to the end of a later one's, and then until the answer is taken.",
    )


class StorageSettings(_Section):
    """Where groups and offsets live."""

    url: str = Field(
        default="sqlite:///groupkeeper.db",
        min_length=1,
        description="memory: (forgets everything at exit) or sqlite:///PATH, a relative path being "
        "relative to the working directory (sqlite:////var/lib/... is absolute).",
    )
    append_timeout_ms: int = _coordinators(
        "append_timeout_ms",
        ge=100,
        description="Milliseconds that one append may take before its shards are loaded anew and "
        "its clients told to ask again (Kafka's offsets.commit.timeout.ms). Must lie below "
        "group.min_session_timeout_ms, or a slow disk would evict members.",
    )
    max_group_bytes: int = _coordinators(
        "max_group_bytes",
        ge=4_096,
        description="Bytes that one group may take when it is saved: its offsets with their "
        "metadata, and its members. Of a commit that would make it larger the partitions that do "
        "not fit are refused with INVALID_COMMIT_OFFSET_SIZE; members are refused (with "
        "UNKNOWN_SERVER_ERROR) where they alone take more. A group is in memory as a whole and "
        "read at every start; this is 100,000 partitions with 500 bytes of metadata each.",
    )


class LogSettings(_Section):
    """The event log: its sealed segments, and how far back they reach."""

    dir: str = Field(
        default="groupkeeper-log",
        min_length=1,
        description="Directory of the sealed segments, made at start. Stores may share one; its "
        "disk holds what retention_minutes says, about 100 bytes a commit of ten partitions.",
    )
    sealing: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="auto: events of a store on disk become files in log.dir and leave the store, "
        "and a memory: store keeps its newest 100,000 and writes nothing. on: a memory: store is "
        "sealed, too. off: events stay in the store, which grows with every commit.",
    )
    segment_bytes: int = Field(
        default=67_108_864,
        ge=4_096,
        description="Bytes of JSON after which a segment is closed (Kafka's log.segment.bytes); "
        "the file is a tenth of it or less. gzip cannot be split, so this is what one task of a "
        "reader has to take.",
    )
    segment_ms: int = Field(
        default=300_000,
        ge=100,
        description="Milliseconds after which a segment is closed however small it is (Kafka's "
        "log.roll.ms). Reports made from the files are that old; 5 minutes are at most 288 files "
        "a day. The first segment after a start is closed after 10 seconds at most.",
    )
    retention_minutes: int = Field(
        default=43_200,
        ge=-1,
        description="The horizon of undo: whole UTC days that are older go (Kafka's "
        "log.retention.minutes), and what was committed then is kept as a snapshot, with the last "
        "value of every offset that expired or was deleted. 30 days; -1 keeps everything.",
    )
    end_offset_interval_ms: int = _coordinators(
        "end_offset_interval_ms",
        description="Milliseconds between two samples of the partitions' ends, which lag is "
        "computed from; only ends that changed are written. 0 takes none.",
    )


class StaticTopic(_Section):
    """A topic of the configuration file."""

    name: str = Field(
        min_length=1,
        max_length=249,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="The topic's name, by Kafka's rules.",
    )
    partitions: int = Field(
        ge=1,
        le=100_000,
        description="The least number of partitions; it is grown to this, never cut.",
    )
    end_offset: int = Field(
        default=0,
        ge=0,
        description="The least end of each partition, answered to ListOffsets LATEST, so that "
        "resets and restores to a larger offset than any committed one are not clamped.",
    )

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, name: str) -> str:
        if name in RESERVED_TOPICS:
            raise ValueError(f"{name} is a name of Kafka's own: there is no such topic here")
        return name


class StaticSettings(_Section):
    """Topics, as the configuration file has them."""

    auto_create_topics: bool = Field(
        default=False,
        description="true: Metadata creates what a client asks for, with num_partitions. Off "
        "because a misspelt name would become a topic.",
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=100_000,
        description="Partitions of a topic that is created without a number (Kafka's "
        "num.partitions).",
    )
    topics: tuple[StaticTopic, ...] = Field(
        default=(),
        description="The topics that must exist: created and grown at start, never deleted.",
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


class GroupSettings(_Section):
    """Kafka's group.* settings under Kafka's names."""

    min_session_timeout_ms: int = _coordinators(
        "min_session_timeout_ms",
        description="Milliseconds; the least session timeout a member may ask for. Shorter ones "
        "find the dead sooner and cost more heartbeats and false alarms.",
    )
    max_session_timeout_ms: int = _coordinators(
        "max_session_timeout_ms",
        description="Milliseconds; the largest session timeout a member may ask for.",
    )
    initial_rebalance_delay_ms: int = _coordinators(
        "initial_rebalance_delay_ms",
        default=CoreLimits().initial_rebalance_delay_ms,
        description="Milliseconds an empty group waits for more members before its first "
        "generation, so that a fleet that starts together is assigned once. 0 in development.",
    )
    max_size: int = _coordinators(
        "group_max_size",
        description="Members a group may have; Kafka's default is no limit.",
    )
    max_groups: int = _coordinators(
        "max_groups",
        description="Groups that may exist. Any client can name new ones and each costs about 2 KB "
        "of memory, so 1,000,000 are 2 GB. At the limit a join or a commit that would create one "
        "more is answered COORDINATOR_NOT_AVAILABLE; groups that exist are served, even where a "
        "store has more of them.",
    )


class OffsetsSettings(_Section):
    """Kafka's offsets.* and offset.* settings under Kafka's names."""

    retention_minutes: int = Field(
        default=CoreLimits().offsets_retention_ms // 60_000,
        ge=1,
        description="Minutes after which the offsets of a group that has no members are dropped.",
    )
    retention_check_interval_ms: int = _coordinators(
        "retention_check_interval_ms",
        description="Milliseconds between two looks for expired offsets.",
    )
    metadata_max_bytes: int = _coordinators(
        "offset_metadata_max_bytes",
        description="Length of the metadata string of a committed offset, counted in UTF-16 code "
        "units as Kafka does despite the name.",
    )
    topic_num_partitions: int = _coordinators(
        "shards",
        description="Shards that groups are spread over, as over the partitions of "
        "__consumer_offsets. Fixed when a store is created.",
    )


class DaemonSettings(_Section):
    """The process."""

    drain_timeout_ms: int = _coordinators(
        "drain_timeout_ms",
        ge=100,
        description="Milliseconds that a clean stop (SIGTERM) may take: flush, answer parked "
        "requests, fold the log. Keep it below what your supervisor grants before it kills.",
    )


class LoggingSettings(_Section):
    """What the process says on standard error; SIGHUP reads the level again."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error."
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="json, console, or auto: console on a terminal, else JSON."
    )


class MetricsSettings(_Section):
    """/metrics."""

    groups: Literal["off", "summary", "partitions"] = Field(
        default="off",
        description="Members, offsets and lag of each group under the names of kafka_exporter. "
        "summary: by group and topic. partitions: also by partition, two series for each "
        "committed offset and two for each partition of a topic. Off because every group becomes "
        "series that Prometheus keeps; max_series bounds them.",
    )
    max_series: int = Field(
        default=10_000,
        ge=100,
        description="Series that one scrape may hold; what is beyond is counted in "
        "groupkeeper_metrics_dropped_series_total and left out, so that no client can flood your "
        "Prometheus.",
    )


class Settings(BaseModel):
    """All settings. ``config_load.load_settings`` creates them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()
    storage: StorageSettings = StorageSettings()
    log: LogSettings = LogSettings()
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
        )
        if wrong is not None:
            raise ValueError(wrong)
        return self


def setting_names() -> Iterator[str]:
    """Yield ``section.key`` of every setting, in the order of the documentation."""
    for section, key, _ in _fields():
        yield f"{section}.{key}"


def coordinators_names() -> dict[str, str]:
    """Return the settings that the coordinator has as well: ``section.key`` -> its name there."""
    return {
        f"{section}.{key}": str(field.json_schema_extra[_COORDINATORS])
        for section, key, field in _fields()
        if isinstance(field.json_schema_extra, dict)
    }


def _fields() -> Iterator[tuple[str, str, FieldInfo]]:
    for section, declared in Settings.model_fields.items():
        assert isinstance(declared.annotation, type)
        assert issubclass(declared.annotation, BaseModel)
        for key, field in declared.annotation.model_fields.items():
            yield section, key, field


def variable_of(name: str) -> str:
    """Return the environment variable of ``section.key``."""
    return ENV_PREFIX + name.upper().replace(".", ENV_DELIMITER)


def absolute_storage_url(url: str) -> str:
    """Return the URL with an absolute SQLite path, resolved from the working directory."""
    if not url.startswith(_SQLITE):
        return url
    return _SQLITE + str(Path(url[len(_SQLITE) :]).absolute())
