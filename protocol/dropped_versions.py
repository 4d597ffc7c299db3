"""OffsetCommit v0 and v1: requests that Kafka 4 dropped and old clients still send (spec section
2).

Stated in the form of kio's classes, so that ``protocol.reader`` reads them like any other. aiokafka
has schemas of them, but its decoder takes a null anywhere, refuses text that is not UTF-8, knows no
bound on elements, and costs a tenth of a second to import; tests hold ours equal to it. OffsetFetch
v0 has the bytes of v1 and needs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


def _wire(kafka_type: str) -> Any:
    return field(metadata={"kafka_type": kafka_type})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitPartitionV0:
    """An offset to commit."""

    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 0
    partition_index: int = _wire("int32")
    committed_offset: int = _wire("int64")
    committed_metadata: str | None = _wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitTopicV0:
    """A topic with offsets to commit."""

    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 0
    name: str = _wire("string")
    partitions: tuple[OffsetCommitPartitionV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestV0:
    """A commit without member or generation; ZooKeeper-era Kafka wrote it to ZooKeeper."""

    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 0
    group_id: str = _wire("string")
    topics: tuple[OffsetCommitTopicV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitPartitionV1:
    """An offset to commit, with the client's own idea of when that is."""

    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 1
    partition_index: int = _wire("int32")
    committed_offset: int = _wire("int64")
    commit_timestamp: int = _wire("int64")
    committed_metadata: str | None = _wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitTopicV1:
    """A topic with offsets to commit."""

    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 1
    name: str = _wire("string")
    partitions: tuple[OffsetCommitPartitionV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestV1:
    """A commit of a member, or of nobody (generation -1, no member)."""

    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[int] = 1
    group_id: str = _wire("string")
    generation_id_or_member_epoch: int = _wire("int32")
    member_id: str = _wire("string")
    topics: tuple[OffsetCommitTopicV1, ...]
