"""Finds from heartbeats and their answers which member owned which partition.

A member owns a partition from the answer that gave it until one of these:

- The member sends a heartbeat that reports its partitions without this one, and the coordinator
  does not refuse the heartbeat. It counts even if its answer is lost.
- The member sends a heartbeat that joins or leaves. It then has nothing, whatever the answer is.
- The coordinator removes the member: it tells the member so, or the event log has the removal. The
  member may not know this yet, for instance because its process is stopped.

This is Kafka's rule (docs/spec/consumer-groups.md#reconciliation). What the application of a member
has been told is not part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.wire.raw_client import API_KEYS, decode_request, decode_response
from tests.helpers.wire.recording_proxy import Frame

Partition = tuple[str, int]

HEARTBEAT = "consumer_group_heartbeat"
HEARTBEAT_KEY = API_KEYS[HEARTBEAT]
REMOVED = frozenset({25, 82})
"""UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: the member is not in the group any more."""


class Heartbeat(NamedTuple):
    """One heartbeat, or its answer."""

    at_ns: int
    call: tuple[int, int]
    """The connection and the correlation id of the heartbeat. Its answer has the same."""
    is_answer: bool
    member: str
    """The client id, which is the name of the member in a test."""
    member_id: str
    epoch: int
    error: int
    partitions: frozenset[Partition] | None
    """The partitions that the heartbeat reports or that the answer assigns; None if it has none."""


def heartbeats(frames: Iterable[Frame], topics: Mapping[str, str]) -> Iterator[Heartbeat]:
    """Decode the heartbeats and answers among frames. ``topics`` has the names by topic id."""
    asked: dict[tuple[int, int], tuple[str, str]] = {}
    for frame in frames:
        if frame.api_key != HEARTBEAT_KEY:
            continue
        if frame.direction == "request":
            header, told = decode_request(HEARTBEAT, frame.api_version, frame.data)
            call = (frame.connection, header["correlation_id"])
            who = asked[call] = (header["client_id"], told["member_id"])
            owned = _partitions(told["topic_partitions"], topics)
            yield Heartbeat(frame.at_ns, call, False, *who, told["member_epoch"], 0, owned)
        else:
            correlation_id, told = decode_response(HEARTBEAT, frame.api_version, frame.data)
            call = (frame.connection, correlation_id)
            member, member_id = asked.pop(call)
            given = told["assignment"] and told["assignment"]["topic_partitions"]
            yield Heartbeat(
                frame.at_ns,
                call,
                True,
                member,
                told["member_id"] or member_id,
                told["member_epoch"],
                told["error_code"],
                _partitions(given, topics),
            )


def _partitions(
    told: list[dict[str, Any]] | None, topics: Mapping[str, str]
) -> frozenset[Partition] | None:
    if told is None:
        return None
    return frozenset((topics[each["topic_id"]], n) for each in told for n in each["partitions"])


def removals(events: Iterable[EventDict]) -> dict[str, list[int]]:
    """Return when the coordinator removed members, in ns by its wall clock, by member id."""
    removed: dict[str, list[int]] = defaultdict(list)
    for event in events:
        member_id = {
            "member_evicted": event.get("member_id"),
            "member_leave": event.get("member_id"),
            "member_join": event.get("replaces"),
        }.get(event["kind"])
        if member_id:
            removed[member_id].append(event["ts_ms"] * 1_000_000)
    return removed


class Ownership:
    """The owner of each partition at each time. Raises an error if a partition was assigned while
    it had another owner.
    """

    def __init__(self, told: Iterable[Heartbeat], removed: Mapping[str, list[int]]) -> None:
        self.given = 0
        """The number of partitions that were assigned."""
        self._removed = removed
        self._owners: dict[Partition, Heartbeat] = {}
        """Partition -> the answer that gave it to its present owner."""
        self._changes: dict[tuple[str, Partition], list[tuple[int, Heartbeat | None]]]
        self._changes = defaultdict(list)
        """(member, partition) -> [(time in ns, the answer that gave the partition, or None when the
        member gave it up)].
        """
        self._reported: dict[tuple[int, int], dict[Partition, Heartbeat]] = {}
        """Call of a heartbeat without an answer -> the partitions that it gave up."""
        self._open: dict[str, dict[tuple[int, int], list[frozenset[Partition]]]]
        self._open = defaultdict(dict)
        """Member -> its heartbeats without an answer, each with what later heartbeats report.

        A member may leave before it has the answer to its last heartbeat. It has then given up the
        partitions of this answer.
        """
        for each in told:
            if each.is_answer:
                self._answered(each)
            else:
                self._sent(each)

    def had_given_up(self, member: str, partition: Partition, at_ns: int) -> bool:
        """Return True if a member had owned a partition, and no longer owned it at this time."""
        before = [change for at, change in self._changes[member, partition] if at <= at_ns]
        if not before:
            return False
        return before[-1] is None or self._is_removed(before[-1], at_ns)

    def _sent(self, heartbeat: Heartbeat) -> None:
        has_nothing = heartbeat.epoch <= 0
        kept = frozenset() if has_nothing else heartbeat.partitions
        if kept is not None:
            for later in self._open[heartbeat.member].values():
                later.append(kept)
            gone = {p: owner for p, owner in self._of(heartbeat.member) if p not in kept}
            for partition in gone:
                self._end(heartbeat.member, partition, heartbeat.at_ns)
            if not has_nothing:
                self._reported[heartbeat.call] = gone
        self._open[heartbeat.member][heartbeat.call] = []

    def _answered(self, answer: Heartbeat) -> None:
        reported = self._reported.pop(answer.call, {})
        later = self._open[answer.member].pop(answer.call)
        if answer.error in REMOVED:
            for partition, _ in self._of(answer.member):
                self._end(answer.member, partition, answer.at_ns)
            return
        if answer.error:
            for partition, owner in reported.items():
                self._give(partition, owner, answer)
            return
        for partition in (answer.partitions or frozenset()).intersection(*later):
            self._give(partition, answer, answer)
            self.given += 1

    def _give(self, partition: Partition, owner: Heartbeat, now: Heartbeat) -> None:
        before = self._owners.get(partition)
        if before is not None and before.member != owner.member:
            assert self._is_removed(before, now.at_ns), (
                f"{partition} was given to {owner.member} while {before.member} had it:"
                f"\n{before}\n{owner}\n{now}"
            )
            self._end(before.member, partition, now.at_ns)
        self._owners[partition] = owner
        self._changes[owner.member, partition].append((now.at_ns, owner))

    def _is_removed(self, owner: Heartbeat, at_ns: int) -> bool:
        """Return True if the coordinator removed the owner after it gave the partition."""
        since_ns = owner.at_ns // 1_000_000 * 1_000_000  # events have milliseconds
        return any(since_ns <= at <= at_ns for at in self._removed.get(owner.member_id, ()))

    def _of(self, member: str) -> list[tuple[Partition, Heartbeat]]:
        return [(p, owner) for p, owner in self._owners.items() if owner.member == member]

    def _end(self, member: str, partition: Partition, at_ns: int) -> None:
        del self._owners[partition]
        self._changes[member, partition].append((at_ns, None))
