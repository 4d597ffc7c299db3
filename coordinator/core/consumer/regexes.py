"""Decides when the patterns of a consumer group are resolved, and records the result.

See docs/spec/consumer-groups.md#regex. The runtime compiles the patterns and compares them with the
names of topics.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from groupkeeper.coordinator.core.consumer import failure_events, rebalance
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.consumer.subscriptions import pattern_bytes
from groupkeeper.coordinator.core.consumer_records import PatternTopics, ResolvedPattern
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES
from groupkeeper.coordinator.core.work import Work, WorkFailed, WorkOutcome

MIN_INTERVAL_MS: Final = 10_000
"""The least time in ms between two searches for the topics of a group's patterns (Kafka:
REGEX_BATCH_REFRESH_MIN_INTERVAL_MS).
"""


def are_due(shard: ShardState, group: ConsumerGroup) -> bool:
    """Return True if the next heartbeat must begin to find the topics of the patterns again."""
    if not _may_resolve(shard, group):
        return False
    subscriptions = group.subscriptions
    now_ms, last_ms = shard.now.monotonic_ms, group.last_resolution_ms
    if last_ms is None or len(subscriptions.resolved) < len(subscriptions.pattern_counts):
        return True
    if now_ms - last_ms >= shard.limits.consumer_regex_refresh_interval_ms:
        return True
    return group.resolved_version < shard.image.created_version


def _may_resolve(shard: ShardState, group: ConsumerGroup) -> bool:
    """Return True if a search for the topics of the group's patterns may begin: there are patterns,
    no search is running, and the last search began long enough ago.
    """
    if group.resolving or not group.subscriptions.pattern_counts:
        return False
    last_ms = group.last_resolution_ms
    return last_ms is None or shard.now.monotonic_ms - last_ms > MIN_INTERVAL_MS


def resolve_if_due(shard: ShardState, group: ConsumerGroup, pattern: str | None) -> None:
    """Begin to resolve all patterns of the group together (find their topics), if it is time.
    ``pattern`` is the present pattern of the member that sent the heartbeat.

    Call this before ``forget_pattern``, which may clear ``last_resolution_ms``. So if a heartbeat
    has a new pattern, and the last search for topics began less than ten seconds ago, the heartbeat
    begins no search, as in Kafka. If the group had no other pattern, its next heartbeat begins one.
    """
    is_new = pattern is not None and pattern not in group.subscriptions.resolved
    if are_due(shard, group) or (is_new and _may_resolve(shard, group)):
        group.resolving = True
        group.last_resolution_ms = shard.now.monotonic_ms
        group.resolved_version = shard.image.version
        patterns = tuple(group.subscriptions.patterns())
        epoch = group.epochs.group
        shard.begin_work(PatternWork(group_id=group.group_id, epoch=epoch, patterns=patterns))


def work_done(shard: ShardState, group: ConsumerGroup, work: Work, outcome: WorkOutcome) -> bool:
    """Record the topics of patterns. Begin a new epoch if they changed, or if the topics of the
    group changed since its last epoch. Return False if the work is not a ``PatternWork``.

    A heartbeat that replaces a pattern forgets the topics of the old one, and begins no epoch. If
    the new pattern matches nothing, or its topics are not found, only two things show that: the
    hash, if the group has fewer topics, and the member's target, if others have the same topics.
    """
    if not isinstance(work, PatternWork):
        return False
    group.resolving = False
    resolved = group.subscriptions.resolved
    new = {pattern for pattern in work.patterns if pattern not in resolved}
    changed = False
    if isinstance(outcome, WorkFailed):
        failure_events.add_not_resolved(shard, group, work.patterns, outcome.message)
    else:
        assert isinstance(outcome, PatternMatches), "the result of a PatternWork"
        group.resolved_version = outcome.topics_version
        changed = _record_topics(shard, group, work, outcome)
    has_fewer = group.subscriptions.metadata_hash(shard.image) != group.epochs.metadata_hash
    if group.epochs.needs_target():
        new &= resolved.keys()  # the others are resolved again later
    if changed or has_fewer or (new and _is_owed_a_target(shard, group, new)):
        rebalance.bump(shard, group, "pattern_resolved", "")
    return True


def _record_topics(
    shard: ShardState, group: ConsumerGroup, work: PatternWork, outcome: PatternMatches
) -> bool:
    """Record the topics that patterns match. Return True if those of a pattern changed."""
    unusable = [pattern for pattern in work.patterns if pattern not in outcome.topics]
    too_large = []
    changed = False
    for pattern, topics in outcome.topics.items():
        if group.subscriptions.pattern_count(pattern):
            known = group.subscriptions.resolved.get(pattern)
            resolved = PatternTopics(topics, outcome.topics_version, shard.now.wall_ms)
            size_bytes = SMALL_RECORD_BYTES + pattern_bytes(pattern, resolved)
            if not _fits(shard, group, pattern, topics, known, size_bytes):
                too_large.append(pattern)  # it is resolved again later
                continue
            changed = changed or topics != (() if known is None else known.topics)
            shard.record(ResolvedPattern(group.group_id, pattern, resolved), size_bytes)
    failure_events.add_not_resolved(shard, group, unusable, "this process cannot use it")
    failure_events.add_not_resolved(shard, group, too_large, "the group has no room for its topics")
    return changed


def _is_owed_a_target(shard: ShardState, group: ConsumerGroup, patterns: Set[str]) -> bool:
    """Return True if a member with one of these patterns has a topic in its target to which it does
    not subscribe any more. Nobody would read the partitions of this topic.
    """
    return any(
        not group.subscriptions.ids_of(member.subscription, shard.image) >= member.target.keys()
        for member in group.members.values()
        if member.subscription.pattern in patterns
    )


def _fits(
    shard: ShardState,
    group: ConsumerGroup,
    pattern: str,
    topics: tuple[str, ...],
    known: PatternTopics | None,
    size_bytes: int,
) -> bool:
    """Return True if the group may have these topics for a pattern, the step and the group are then
    small enough to be stored, and the metadata of all groups has room.
    """
    limits = shard.limits
    held_names = 0 if known is None else len(known.topics)
    held_bytes = 0 if known is None else SMALL_RECORD_BYTES + pattern_bytes(pattern, known)
    added_bytes = size_bytes - held_bytes
    if not group.subscriptions.admits(len(topics) - held_names):
        return False
    if shard.step.record_bytes + size_bytes > limits.max_step_bytes:
        return False
    most_bytes = min(limits.max_group_bytes, limits.max_step_bytes)
    if added_bytes > 0 and group.size_bytes + added_bytes > most_bytes:
        return False
    return shard.admits_metadata(size_bytes, added_bytes)
