"""Reads the topics of a Metadata reply of the upstream cluster, one by one (pure).

A large cluster has 100,000 partitions. Only the name, the id and the number of partitions are read;
the caller lets the event loop run between topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as struct_error
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.message import checked, reply_of
from groupkeeper.coordinator.gateway.rewriting import MAX_ELEMENTS
from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.errors import ProtocolError

METADATA: Final = 3
METADATA_VERSIONS: Final = range(4, 14)
"""From version 4 on, a request can say that no topic must be created."""


class ObservedTopic(NamedTuple):
    """A topic as the upstream describes it."""

    name: str
    topic_id: str
    """Empty if the upstream has no topic ids (before Kafka 2.8)."""
    partitions: int
    error: int

    @property
    def is_there(self) -> bool:
        """True if the topic exists and its partitions are known."""
        return self.partitions > 0 and self.error in _THERE


_LEADER_NOT_AVAILABLE, _REPLICA_NOT_AVAILABLE = 5, 9
_THERE: Final = frozenset({ErrorCode.NONE, _LEADER_NOT_AVAILABLE, _REPLICA_NOT_AVAILABLE})


def topics_of(version: int, frame: bytes) -> Iterator[ObservedTopic]:
    """Yield the topics of a reply. Raises ProtocolError if the bytes are not valid."""
    try:
        for topic in reply_of(METADATA, version, frame, MAX_ELEMENTS).excerpts("topics"):
            yield ObservedTopic(
                topic.text("name") or "",
                uuid_to_topic_id(topic.uuid("topic_id")),
                max(topic.count("partitions"), 0),
                topic.int16("error_code"),
            )
    except (IndexError, struct_error):
        raise ProtocolError("truncated", "the list of topics ends early") from None


def is_of_cluster(cluster_id: str, version: int, frame: bytes) -> bool:
    """Return True if a Metadata reply is of the cluster with this id. Raises ProtocolError if the
    bytes are not valid.
    """
    reply = reply_of(METADATA, version, frame, MAX_ELEMENTS)
    expected = reply.shape.text(cluster_id)
    at = checked(lambda: reply.skip_to("cluster_id"), "the list of topics")
    return frame[at : at + len(expected)] == expected
