"""Requests that Kafka 4 removed and old clients still send: OffsetCommit 0 and 1.

See docs/spec/wire.md#old-versions. kio does not have them, but aiokafka has their schemas. Here the
schemas become classes in kio's form, which ``protocol.reader`` reads. aiokafka's own decoder is not
used: it accepts null anywhere, refuses text that is not UTF-8, and has no limit on elements.
OffsetFetch 0 needs no class of its own, because it has the same bytes as version 1.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Any, Final

from aiokafka.protocol.commit import OffsetCommitRequest_v0, OffsetCommitRequest_v1
from aiokafka.protocol.types import Array, Int32, Int64, Schema, String

from groupkeeper.protocol.fields import EntityClass

_NAMES: Final = {
    "consumer_group": "group_id",
    "consumer_group_generation_id": "generation_id_or_member_epoch",
    "consumer_id": "member_id",
    "topics": "topics",
    "topic": "name",
    "partitions": "partitions",
    "partition": "partition_index",
    "offset": "committed_offset",
    "timestamp": "commit_timestamp",
    "metadata": "committed_metadata",
}
"""aiokafka's name of a field -> Kafka's name in later versions."""

_MAY_BE_NULL: Final = "committed_metadata"


def _entity(name: str, version: int, schema: Schema) -> EntityClass:
    """Return a class in kio's form from a schema of aiokafka."""
    members: list[Any] = []
    for old_name, kind in zip(schema.names, schema.fields, strict=True):
        known = _NAMES[old_name]
        if isinstance(kind, Array):
            element = _entity(f"{name}{known.title()}", version, kind.array_of)
            members.append((known, tuple[element, ...]))  # type: ignore[valid-type]
        elif isinstance(kind, String):
            hint = str | None if known == _MAY_BE_NULL else str
            members.append((known, hint, field(metadata={"kafka_type": "string"})))
        else:
            assert kind in (Int32, Int64), f"{old_name}: {kind}"
            wire = "int32" if kind is Int32 else "int64"
            members.append((known, int, field(metadata={"kafka_type": wire})))
    return make_dataclass(
        name,
        members,
        namespace={"__flexible__": False, "__version__": version},
        frozen=True,
        slots=True,
        kw_only=True,
    )


OFFSET_COMMIT_REQUESTS: Final = (
    # A commit without member or generation. Kafka wrote it to ZooKeeper.
    _entity("OffsetCommitRequestV0", 0, OffsetCommitRequest_v0.SCHEMA),
    # A commit of a member, or without one (generation -1, empty member id).
    _entity("OffsetCommitRequestV1", 1, OffsetCommitRequest_v1.SCHEMA),
)
"""The class of an OffsetCommit. The index is its version."""
