"""Checks the storage, config and topics that a host passes to a coordinator.

Without these checks, a wrong object would raise AttributeError later, during a load.
"""

from __future__ import annotations

from collections.abc import Mapping

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.embed.assignor_plugins import unknown_assignor
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.base import check_storage


def check_parts(storage: object, config: object) -> None:
    """Raise TypeError if the storage or the config has a wrong type, and ValueError if the config
    names an assignor that is not installed.
    """
    check_storage(storage)
    if not isinstance(config, CoordinatorConfig | None):
        raise TypeError(f"config must be a CoordinatorConfig, not {config!r}")
    unknown = None if config is None else unknown_assignor(config.consumer_assignors)
    if unknown is not None:
        raise ValueError(f"consumer_assignors: {unknown}")


def as_topics(topics: object, limits: CoreLimits) -> Topics | None:
    """Return a host's topics as Topics. Raises TypeError or ValueError if they are invalid."""
    if isinstance(topics, Mapping):
        topics = Topics(ConfiguredTopic(name, count) for name, count in topics.items())
    if not isinstance(topics, Topics | None):
        raise TypeError(
            "topics must be Topics([ConfiguredTopic(...)]), or a mapping of names to numbers of "
            f"partitions, not {topics!r}"
        )
    if topics is not None:
        topics.check(limits)
    return topics
