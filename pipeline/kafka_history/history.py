"""Converts the records of ``__consumer_offsets`` into events (pure).

Each partition of the topic becomes a separate log, whose events are numbered from 1. All records of
a group are in one partition.

An event has only what the records show. A commit has the generation of its group at that time, and
the member to which the partition was assigned. A commit in a transaction has the API
``TxnOffsetCommit``. It takes effect when the transaction is committed. If its member has left the
group before that, the event has no member.

A tombstone becomes ``offset_deleted`` or ``group_deleted`` with the reason ``tombstone``: Kafka
writes the same record if an offset expires, if it is deleted, and if its topic is deleted.

Records that compaction removed are missing. If an offset was committed a thousand times, the broker
may keep only the last commit. So the value before the first remaining record of an offset is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from groupkeeper.pipeline.kafka_history.dump import Dump, DumpError, read_partition
from groupkeeper.pipeline.kafka_history.transactions import RawRecord
from groupkeeper.protocol.offsets_topic import (
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
"""The reason of every imported deletion, because Kafka does not record the true reason."""

NOT_TOLD: Final = "(not told)"
"""The member id of a commit whose member is unknown. We do not read the records of groups of the
consumer protocol, so their members are unknown."""


class _Offset(NamedTuple):
    """The committed offset of one group and partition, as far as the history shows it."""

    offset: int | None
    """The offset; None if it is unknown, because compaction may have removed the commit."""
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    topic_id: str


@dataclass
class _Group:
    """The known state of a group at one point of its history."""

    value: GroupValue | None = None
    is_classic: bool = True
    owners: dict[tuple[str, int], int] = field(default_factory=dict)
    """Maps a topic and partition to its member, as an index of ``value.members``."""


class Decoder:
    """Converts the records of one partition of ``__consumer_offsets`` into events, in order."""

    def __init__(self, log_id: str, shard: int, whole_until: int = 0) -> None:
        """Start with no known groups and offsets. Compaction has removed no records below the
        offset ``whole_until``. From this offset on, records may be missing.
        """
        self._log_id = log_id
        self._shard = shard
        self._seq = 0
        self._ts_ms = 0
        self._groups: dict[str, _Group] = {}
        self._whole_until = whole_until
        self._offsets: dict[OffsetKey, _Offset | None] = {}
        """Maps each group and partition to its current offset; None if the offset was deleted."""

    def events(self, record: RawRecord) -> Iterator[dict[str, Any]]:
        """Yield the events of a record. Raises RecordError if the record cannot be decoded."""
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
        # compaction may have removed the records before this one
        is_cut_off = key not in self._offsets and record.offset >= self._whole_until
        before = self._offsets.get(key)
        if value is None:
            self._offsets[key] = None
            last = before or _Offset(None if is_cut_off else -1, -1, "", -1, "")
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
                "api": "TxnOffsetCommit" if record.is_transactional else "OffsetCommit",
                **self._committer(key),
                "commit_time_ms": value.commit_timestamp,
                "expire_time_ms": value.expire_timestamp,
                "topics": _topics(key, now, previous_offset=None if is_cut_off else previous),
            },
        )

    def _committer(self, key: OffsetKey) -> dict[str, Any]:
        """Return the fields of a commit about its member and client, as far as they are known.

        The member is the owner of the partition, because a group with members accepts commits only
        from its members.
        """
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


def _topics(key: OffsetKey, value: _Offset, **more: int | None) -> list[dict[str, Any]]:
    told = {
        "partition": key.partition,
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        **more,
    }
    partition = {name: each for name, each in told.items() if each is not None}
    return [{"topic": key.topic, "topic_id": value.topic_id, "partitions": [partition]}]


def log_id_of(dump: Dump, partition: int) -> str:
    """Return the id of the log with the events of a partition of the topic."""
    return f"{dump.id}-{partition}"


def decode_file(
    directory: Path, dump: Dump, partition: int, file: str, *, skip_unreadable: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the events of one file of a dump. Raises DumpError if a record cannot be read; with
    ``skip_unreadable``, leave such records out.
    """
    whole_until = next(each.whole_until for each in dump.partitions if each.partition == partition)
    decoder = Decoder(log_id_of(dump, partition), partition, whole_until)
    for record in read_partition(directory / file):
        try:
            yield from decoder.events(record)
        except RecordError as error:
            if not skip_unreadable:
                raise DumpError(
                    f"{directory / file}: the record at offset {record.offset} cannot be read: "
                    f"{error}. --skip-unreadable leaves such records out"
                ) from None
