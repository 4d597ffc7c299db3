"""Looks up topics and partitions in the list of topics (``TopicImage``), for the APIs that the
leader of a partition answers.

In static mode we are the leader of every partition (docs/design.md#static-mode).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.protocol.codec import uuid_to_topic_id

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo

LEADER_EPOCH = 0
"""The leader epoch of every partition. Leaders never change here (docs/design.md#static-mode)."""


def find_by_name(image: TopicImage, name: str) -> TopicInfo | ErrorCode:
    """Return a topic by its name, or the error if it does not exist."""
    return image.by_name.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def find_by_id(image: TopicImage, topic_id: UUID | None) -> TopicInfo | ErrorCode:
    """Return a topic by its id, or the error if it does not exist. The id zero counts as
    unknown.
    """
    return image.by_id.get(uuid_to_topic_id(topic_id)) or ErrorCode.UNKNOWN_TOPIC_ID


def check_partition(topic: TopicInfo | ErrorCode, partition: int, leader_epoch: int) -> ErrorCode:
    """Return NONE if the partition exists and the client's leader epoch is ours, otherwise the
    error. ``leader_epoch`` is -1 if the client sent none, which is accepted.
    """
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if leader_epoch < -1:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE
