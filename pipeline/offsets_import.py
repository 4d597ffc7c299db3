"""A cluster's history out of a dump of ``__consumer_offsets``, as events of the one schema.

Each partition of the topic becomes a log of its own, numbered from 1 in the order of its offsets; a
group lives in one of them. Decoding is plain Python over one file, and each file is a task.

What the records do not tell is not made up. A commit bears the generation of the group as it stood,
and of its members the one that the partition was assigned to; a tombstone is an ``offset_deleted``
or a ``group_deleted`` of reason ``tombstone``, for Kafka writes the same where an offset expires,
is deleted, or goes with its topic. What the topic's compaction took is not there: of an offset that
was committed a thousand times the broker may keep the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.bronze import read_bronze, write_batch
from pipeline.lake import Lake
from pipeline.offsets_dump import Dump, DumpError, RawRecord, open_dump, read_partition
from pipeline.schema import EVENT_SCHEMA
from protocol.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    RecordError,
    decode_group,
    decode_key,
    decode_offset,
)

TOMBSTONE: Final = "tombstone"
"""The reason of what went: Kafka does not tell it."""

NOT_TOLD: Final = "(not told)"
"""The member of a commit in a group of the consumer protocol, whose records are not read."""

EVENTS_A_BATCH: Final = 5000
TASKS_A_CORE: Final = 2


class _Offset(NamedTuple):
    """What stood in a partition of a group."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    topic_id: str


@dataclass
class _Group:
    """What is known of a group at one point of its history."""

    value: GroupValue | None = None
    is_classic: bool = True
    owners: dict[tuple[str, int], int] = field(default_factory=dict)
    """Who of its members was assigned a partition."""


class Decoder:
    """The records of one partition of the topic, in their order, made into events."""

    def __init__(self, log_id: str, shard: int) -> None:
        """Begin an empty history."""
        self._log_id = log_id
        self._shard = shard
        self._seq = 0
        self._ts_ms = 0
        self._groups: dict[str, _Group] = {}
        self._offsets: dict[OffsetKey, _Offset] = {}

    def events(self, record: RawRecord) -> Iterator[dict[str, Any]]:
        """Yield the events that a record tells of. Raises RecordError."""
        key = decode_key(record.key)
        if isinstance(key, OffsetKey):
            value = None if record.value is None else decode_offset(record.value)
            yield self._offset_event(record, key, value)
        elif isinstance(key, GroupKey):
            group = None if record.value is None else decode_group(record.value)
            for each in self._group_events(key.group, group):
                yield self._event(record, key.group, each)
        elif key.group:
            self._groups.setdefault(key.group, _Group()).is_classic = False

    def _event(self, record: RawRecord, group: str, more: dict[str, Any]) -> dict[str, Any]:
        self._seq += 1
        self._ts_ms = max(self._ts_ms, record.ts_ms)
        known = self._groups.get(group)
        event: dict[str, Any] = {
            "log_id": self._log_id,
            "seq": self._seq,
            "ts_ms": self._ts_ms,
            "shard": self._shard,
            "lease_epoch": 0,
            "group": group,
            "group_type": "classic" if known is None or known.is_classic else "consumer",
            "generation": -1,
            "member_id": "",
            "client_id": "",
            "client_host": "",
            "principal": "",
            "api": "",
            **more,
        }
        if self._ts_ms != record.ts_ms:
            event["clock_ms"] = record.ts_ms
        return event

    # --- offsets ----------------------------------------------------------------------------------

    def _offset_event(
        self, record: RawRecord, key: OffsetKey, value: OffsetValue | None
    ) -> dict[str, Any]:
        before = self._offsets.pop(key, None)
        if value is None:
            last = before or _Offset(-1, -1, "", -1, "")
            return self._event(
                record,
                key.group,
                {
                    "kind": "offset_deleted",
                    "reason": TOMBSTONE,
                    "topics": _topics(key, last, commit_time_ms=last.commit_time_ms),
                },
            )
        now = _Offset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.topic_id,
        )
        self._offsets[key] = now
        previous = -1 if before is None else before.offset
        return self._event(
            record,
            key.group,
            {
                "kind": "commit",
                "api": "OffsetCommit",
                **self._committer(key),
                "commit_time_ms": value.commit_timestamp,
                "expire_time_ms": value.expire_timestamp,
                "topics": _topics(key, now, previous_offset=previous),
            },
        )

    def _committer(self, key: OffsetKey) -> dict[str, Any]:
        """Who committed. A group with members takes commits of its members alone."""
        group = self._groups.get(key.group)
        if group is None or group.value is None:
            return {} if group is None or group.is_classic else {"member_id": NOT_TOLD}
        if not group.value.members:
            return {}
        found: dict[str, Any] = {"generation": group.value.generation}
        owner = group.owners.get((key.topic, key.partition))
        if owner is not None:
            member = group.value.members[owner]
            found |= {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
            }
        return found

    # --- groups -----------------------------------------------------------------------------------

    def _group_events(self, name: str, value: GroupValue | None) -> Iterator[dict[str, Any]]:
        if value is None:
            if self._groups.pop(name, None) is not None:
                yield {"kind": "group_deleted", "reason": TOMBSTONE, "offsets": 0}
            return
        if name not in self._groups:
            yield {"kind": "group_created"}
        group = _Group(value)
        self._groups[name] = group
        if not value.members:
            return
        assigned = {member.member_id: member.assigned() for member in value.members}
        is_consumer = value.protocol_type == "consumer" and None not in assigned.values()
        if is_consumer:
            for at, member in enumerate(value.members):
                for topic, numbers in (assigned[member.member_id] or {}).items():
                    group.owners |= dict.fromkeys(((topic, each) for each in numbers), at)
        sizes = {member.member_id: len(member.assignment) for member in value.members}
        yield {
            "kind": "assignment",
            "generation": value.generation,
            "protocol_type": value.protocol_type,
            "protocol_name": value.protocol,
            "leader_id": value.leader,
            "members": len(value.members),
            "partitions": assigned if is_consumer else None,
            "opaque_bytes": None if is_consumer else sizes,
        }


def _topics(key: OffsetKey, value: _Offset, **more: int) -> list[dict[str, Any]]:
    partition = {
        "partition": key.partition,
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        **more,
    }
    return [{"topic": key.topic, "topic_id": value.topic_id, "partitions": [partition]}]


def log_id_of(dump: Dump, partition: int) -> str:
    """Return the log that a partition of the topic becomes."""
    return f"{dump.id}-{partition}"


def decode_file(
    directory: Path, dump: Dump, partition: int, file: str, *, skip_unreadable: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the events of one file of a dump. Raises DumpError where a record cannot be read."""
    decoder = Decoder(log_id_of(dump, partition), partition)
    for record in read_partition(directory / file):
        try:
            yield from decoder.events(record)
        except RecordError as error:
            if not skip_unreadable:
                raise DumpError(
                    f"{directory / file}: the record at offset {record.offset} cannot be read: "
                    f"{error}. --skip-unreadable leaves such records out"
                ) from None


# --- the job --------------------------------------------------------------------------------------


class Imported(NamedTuple):
    """What an import brought."""

    batch_id: str
    events: int
    records: int


def import_dump(
    spark: SparkSession, directory: Path, lake: Lake, *, skip_unreadable: bool = False
) -> Imported:
    """Bring a dump into bronze, as one batch; doing it again replaces it by the same.

    The directory must be readable at the same path wherever Spark's tasks run. Raises DumpError.
    """
    dump = open_dump(directory)
    try:
        write_batch(_events(spark, directory, dump, skip_unreadable), lake, dump.id)
    except PythonException as error:
        raise DumpError(_told(str(error))) from None
    written = read_bronze(spark, lake).where(F.col("batch_id") == dump.id).count()
    return Imported(dump.id, written, dump.records)


def _told(trace: str) -> str:
    """Return what a task said, out of the trace of the whole job."""
    said = re.findall(r"^(?:[\w.]+\.)?(\w*Error): (.*)$", trace, re.MULTILINE)
    if not said:
        return trace.strip().splitlines()[0]
    name, text = said[0]
    return text if name == DumpError.__name__ else f"{name}: {text}"


def _events(spark: SparkSession, directory: Path, dump: Dump, skip_unreadable: bool) -> DataFrame:
    files = [(each.partition, each.file) for each in dump.partitions if each.records]
    tasks = min(len(files), TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    rows = spark.createDataFrame(files, "partition int, file string").repartition(max(tasks, 1))
    decode = partial(_decode_batches, str(directory), dump, skip_unreadable)
    events = rows.mapInArrow(decode, "segment string, event string")
    parsed = events.select(
        F.from_json("event", EVENT_SCHEMA, {"mode": "FAILFAST"}).alias("event"), "segment"
    )
    return parsed.select("event.*", "segment")


def _decode_batches(
    directory: str, dump: Dump, skip_unreadable: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            events = decode_file(
                Path(directory),
                dump,
                row["partition"],
                row["file"],
                skip_unreadable=skip_unreadable,
            )
            yield from _record_batches(row["file"], events)


def _record_batches(file: str, events: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    encoder = msgspec.json.Encoder()
    lines: list[str] = []
    for event in events:
        lines.append(encoder.encode(event).decode())
        if len(lines) == EVENTS_A_BATCH:
            yield pa.RecordBatch.from_pydict({"segment": [file] * len(lines), "event": lines})
            lines = []
    if lines:
        yield pa.RecordBatch.from_pydict({"segment": [file] * len(lines), "event": lines})
