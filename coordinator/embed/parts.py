"""What a host makes a coordinator of, checked at once: later a wrong part is an AttributeError
somewhere in a load.
"""

from __future__ import annotations

from collections.abc import Mapping

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.base import OffsetStorage


def check_parts(storage: object, config: object) -> None:
    """Raise TypeError for what cannot be used."""
    if not isinstance(storage, OffsetStorage):
        raise TypeError(
            "storage must be an OffsetStorage, such as SqliteOffsetStorage(path) or "
            f"PersistentOffsetStorage(your_store), not {storage!r}"
        )
    if not isinstance(config, CoordinatorConfig | None):
        raise TypeError(f"config must be a CoordinatorConfig, not {config!r}")


def as_topics(topics: object, limits: CoreLimits) -> Topics | None:
    """Take what a host passes for topics, checked: TypeError, ValueError."""
    if isinstance(topics, Mapping):
        topics = Topics(ConfiguredTopic(name, count) for name, count in topics.items())
    if not isinstance(topics, Topics | None):
        raise TypeError(
            "topics must be Topics([ConfiguredTopic(...)]), or names with their numbers of "
            f"partitions, not {topics!r}"
        )
    if topics is not None:
        topics.check(limits)
    return topics
