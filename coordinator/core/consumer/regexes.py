"""The patterns of a consumer group: when they are resolved, and what becomes of the result.

See docs/spec/consumer-groups.md#regex. Outside the core a pattern is compiled and compared with the
names of topics, which is work for the runtime.
"""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.consumer import rebalance
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.consumer.subscriptions import pattern_bytes
from groupkeeper.coordinator.core.consumer_records import PatternTopics, ResolvedPattern
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkOutcome

MIN_INTERVAL_MS: Final = 10_000
"""The least time between two resolutions of a group (Kafka:
REGEX_BATCH_REFRESH_MIN_INTERVAL_MS).
"""


def are_due(shard: ShardState, group: ConsumerGroup) -> bool:
    """Return whether the next heartbeat begins a resolution."""
    subscriptions = group.subscriptions
    if group.resolving or not subscriptions.has_patterns():
        return False
    now_ms, last_ms = shard.now.monotonic_ms, group.last_resolution_ms
    resolved = subscriptions.resolved
    if last_ms is not None and now_ms - last_ms <= MIN_INTERVAL_MS:
        return False
    if last_ms is None or len(resolved) < subscriptions.pattern_total():
        return True
    if now_ms - last_ms >= shard.limits.consumer_regex_refresh_interval_ms:
        return True
    return group.resolved_version < shard.image.created_version


def resolve_if_due(shard: ShardState, group: ConsumerGroup) -> None:
    """Begin a resolution of all patterns together."""
    if are_due(shard, group):
        group.resolving = True
        group.last_resolution_ms = shard.now.monotonic_ms
        group.resolved_version = shard.image.version
        patterns = tuple(group.subscriptions.patterns())
        epoch = group.epochs.group
        shard.begin_work(PatternWork(group_id=group.group_id, epoch=epoch, patterns=patterns))


def work_done(shard: ShardState, group: ConsumerGroup, work: Work, outcome: WorkOutcome) -> bool:
    """Record the topics of patterns, and begin a new epoch if they changed. Return False if it is
    other work.
    """
    if not isinstance(work, PatternWork):
        return False
    group.resolving = False
    if isinstance(outcome, WorkFailed):
        return True
    assert isinstance(outcome, PatternMatches), "the result of a PatternWork"
    group.resolved_version = outcome.topics_version
    changed = False
    for pattern, topics in outcome.topics.items():
        if group.subscriptions.pattern_count(pattern):
            known = group.subscriptions.resolved.get(pattern)
            changed = changed or known is None or known.topics != topics
            resolved = PatternTopics(topics, outcome.topics_version, shard.now.wall_ms)
            size_bytes = SMALL_RECORD_BYTES + pattern_bytes(pattern, resolved)
            shard.record(ResolvedPattern(group.group_id, pattern, resolved), size_bytes)
    if changed:
        rebalance.bump(shard, group, "pattern_resolved", "")
    return True
