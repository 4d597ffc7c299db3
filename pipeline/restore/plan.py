"""Plans: changes of committed offsets (pure). Restore, migration and undo share this format.

For each partition, a plan has two values: the offset when the plan was made (``current``), and the
wanted offset (``target``). So when a plan is applied, three kinds of changes can be distinguished:
done, not yet done, and those where another client has committed since. The undo of a plan is the
same plan with ``current`` and ``target`` exchanged.

The requested offset may lie outside the log of its partition. Then the target is the start or the
end of the log: it is clamped.

A plan file is one JSON document. Its checksum covers the whole plan, and the plan's id is the
beginning of the checksum. If a file was edited by hand, its checksum is wrong, and the file is
refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

FORMAT: Final = "groupkeeper-plan"
FORMAT_VERSION: Final = 1
ID_LENGTH: Final = 12
"""Digits of the checksum in the id of a plan."""

NO_LEADER_EPOCH: Final = -1


class PlanError(ValueError):
    """A file is not a plan, or was changed after it was written. The message is one line."""


class Partition(NamedTuple):
    """The name of a topic, and the number of one of its partitions."""

    topic: str
    partition: int


class Committed(msgspec.Struct, frozen=True):
    """A committed offset of a group."""

    offset: int
    """The stored value. A negative value is restored unchanged too."""
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""

    def same_as(self, other: Committed) -> bool:
        """Return True if the offsets, the metadata and the leader epochs are equal.

        The leader epochs are compared only if both sides have one. A broker before 2.1 does not
        send leader epochs, and some Kafka-compatible servers drop them.
        """
        epochs = {self.leader_epoch, other.leader_epoch} - {NO_LEADER_EPOCH}
        return self.offset == other.offset and self.metadata == other.metadata and len(epochs) <= 1


class Log(NamedTuple):
    """The log start and end of a partition in the cluster that has its records.

    Both are None if no cluster has its records. Then nothing is clamped.
    """

    start: int | None = None
    end: int | None = None


class Clamp(StrEnum):
    """The reason why the target differs from the requested offset."""

    NONE = "none"
    """The target is the requested offset."""
    LOG_START = "log_start"
    """The requested offset is before the start of the log, so the target is the start."""
    LOG_END = "log_end"
    """The requested offset is after the end of the log, so the target is the end."""
    NO_PARTITION = "no_partition"
    """The partition does not exist, so nothing is changed."""


class PlanKind(StrEnum):
    """The purpose of a plan: to restore the offsets of a past moment, to copy offsets from another
    cluster, or to undo another plan.
    """

    RESTORE = "restore"
    MIGRATION = "migration"
    UNDO = "undo"


class State(StrEnum):
    """The state of one partition of a plan, given its present offset."""

    UNCHANGED = "unchanged"
    """The plan does not change the offset, and the offset is as planned."""
    PENDING = "pending"
    DONE = "done"
    DRIFTED = "drifted"
    """The offset differs from both ``current`` and ``target``: another client committed."""


class Change(msgspec.Struct, frozen=True):
    """One partition of a group, with its current and its target value."""

    topic: str
    partition: int
    current: Committed | None
    target: Committed | None
    """The wanted value. None if the group should have no committed offset."""
    delta: int | None
    """Target minus current; None if either is None. If it is negative, the consumers will read
    records again."""
    clamp: Clamp = Clamp.NONE
    wanted: int | None = None
    """The requested offset, if the target differs from it."""
    log_start: int | None = None
    log_end: int | None = None

    def __post_init__(self) -> None:
        if self.delta != _delta(self.current, self.target):
            raise ValueError(f"{self.topic}-{self.partition}: the delta is not target - current")

    @property
    def changes(self) -> bool:
        """True if the target differs from the current value."""
        return not _same(self.current, self.target)

    @property
    def asked_for(self) -> int | None:
        """The requested offset, also if the target was clamped. None if no offset was requested."""
        if self.clamp is Clamp.NONE:
            return None if self.target is None else self.target.offset
        return self.wanted

    def state(self, now: Committed | None) -> State:
        """Return the state, given the present value ``now`` at the coordinator."""
        if _same(now, self.target):
            return State.DONE if self.changes else State.UNCHANGED
        return State.PENDING if _same(now, self.current) else State.DRIFTED

    def undone(self) -> Change:
        """Return the change from the target back to the current value."""
        return change(Partition(self.topic, self.partition), self.target, self.current)


class GroupPlan(msgspec.Struct, frozen=True):
    """All partitions of one group, including unchanged ones."""

    group: str
    changes: tuple[Change, ...]

    @property
    def to_do(self) -> Iterator[Change]:
        """Return the partitions to change."""
        return (each for each in self.changes if each.changes)


class Content(msgspec.Struct, frozen=True):
    """The content of a plan, which its checksum covers."""

    kind: PlanKind
    created_ms: int
    source: str
    """The origin of the wanted offsets, as text: a log, or a server."""
    server: str
    """The coordinator to change, HOST:PORT; or zookeeper:// and the servers of a registry."""
    data: str
    """The cluster whose logs the targets were clamped to, as text."""
    groups: tuple[GroupPlan, ...]
    as_of_ms: int | None = None
    """For a restore: the moment whose offsets it restores."""
    undoes: str | None = None
    """In an undo: the id of the plan that it undoes."""
    topics: dict[str, str] = {}
    """In a migration: maps the name of a topic at the source to its name at the target, if the two
    differ.
    """


class Plan(msgspec.Struct, frozen=True):
    """A plan with its id and checksum. Created only by ``sealed``, ``undo`` and ``decode``."""

    id: str
    checksum: str
    content: Content

    @property
    def client_id(self) -> str:
        """The client id of this plan's commits. It names the plan in the event log."""
        return f"groupkeeper-restore/{self.id}"

    def undo(self, created_ms: int) -> Plan:
        """Return the plan that undoes this one exactly. Its targets are never clamped, so a target
        may be an offset that the log no longer has."""
        groups = tuple(
            GroupPlan(each.group, tuple(one.undone() for one in each.changes))
            for each in self.content.groups
        )
        return sealed(
            msgspec.structs.replace(
                self.content,
                kind=PlanKind.UNDO,
                created_ms=created_ms,
                groups=groups,
                undoes=self.id,
                data="not clamped: an undo restores the earlier offsets as they were",
            )
        )

    def encode(self) -> bytes:
        """Return the content of a plan file, indented for people."""
        return msgspec.json.format(
            msgspec.json.encode(
                _File(FORMAT, FORMAT_VERSION, self.id, self.checksum, self.content)
            ),
            indent=1,
        )


class _File(msgspec.Struct, frozen=True):
    format: str
    version: int
    id: str
    checksum: str
    plan: Content


class _Head(msgspec.Struct, frozen=True):
    """The fields that every version of the format has, so that an unknown version can be named."""

    format: str = ""
    version: int = 0


def sealed(content: Content) -> Plan:
    """Return a plan of this content, with its checksum and id."""
    checksum = hashlib.sha256(msgspec.json.encode(content)).hexdigest()
    return Plan(checksum[:ID_LENGTH], f"sha256:{checksum}", content)


def decode(data: bytes) -> Plan:
    """Return the plan in a file. Raises PlanError if the content is not a plan of this format, or
    if its checksum is wrong.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise PlanError(
                "this is not a plan: make one with `groupkeeper pipeline restore` or `migrate`"
            )
        if head.version != FORMAT_VERSION:
            raise PlanError(
                f"the plan has format version {head.version}, and this program knows "
                f"{FORMAT_VERSION}: use the program that wrote it, or make the plan again"
            )
        read = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"this is not a plan: {error}") from None
    plan = sealed(read.plan)
    if (plan.id, plan.checksum) != (read.id, read.checksum):
        raise PlanError(
            f"the checksum of plan {read.id} does not match its content: it was changed after it "
            "was made, or cut off. Make it again; a plan is not edited by hand"
        )
    return plan


# --- making the changes of a group ----------------------------------------------------------------


def plan_group(
    group: str,
    current: Mapping[Partition, Committed],
    wanted: Mapping[Partition, Committed],
    logs: Mapping[Partition, Log],
) -> GroupPlan:
    """Plan the changes of a group from ``current`` to ``wanted``, clamped to ``logs``.

    A current offset that is not wanted is deleted. ``logs`` has every existing partition. A
    partition that is not in ``logs`` stays unchanged.
    """
    partitions = sorted(current.keys() | wanted.keys())
    changes = [_clamped(each, current.get(each), wanted.get(each), logs) for each in partitions]
    return GroupPlan(group, tuple(changes))


def _clamped(
    partition: Partition,
    current: Committed | None,
    wanted: Committed | None,
    logs: Mapping[Partition, Log],
) -> Change:
    log = logs.get(partition)
    if log is None:
        # a coordinator refuses a commit for a missing partition
        return change(partition, current, current, wanted=wanted, clamp=Clamp.NO_PARTITION)
    target, clamp = wanted, Clamp.NONE
    if wanted is not None and wanted.offset >= 0:
        if log.start is not None and wanted.offset < log.start:
            target, clamp = _moved(wanted, log.start), Clamp.LOG_START
        elif log.end is not None and wanted.offset > log.end:
            target, clamp = _moved(wanted, log.end), Clamp.LOG_END
    return change(partition, current, target, wanted=wanted, clamp=clamp, log=log)


def _moved(wanted: Committed, offset: int) -> Committed:
    # the leader epoch belongs to the record before the wanted offset, so it is wrong for ``offset``
    return Committed(offset, NO_LEADER_EPOCH, wanted.metadata)


def change(
    partition: Partition,
    current: Committed | None,
    target: Committed | None,
    *,
    wanted: Committed | None = None,
    clamp: Clamp = Clamp.NONE,
    log: Log = Log(),  # noqa: B008  a tuple of two
) -> Change:
    """Return the change of one partition from ``current`` to ``target``, and compute its delta."""
    return Change(
        topic=partition.topic,
        partition=partition.partition,
        current=current,
        target=target,
        delta=_delta(current, target),
        clamp=clamp,
        wanted=wanted.offset if wanted is not None and clamp is not Clamp.NONE else None,
        log_start=log.start,
        log_end=log.end,
    )


def _delta(current: Committed | None, target: Committed | None) -> int | None:
    return None if current is None or target is None else target.offset - current.offset


def _same(one: Committed | None, other: Committed | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.same_as(other)


# --- progress -------------------------------------------------------------------------------------


def progress(plan: GroupPlan, now: Mapping[Partition, Committed]) -> dict[State, list[Change]]:
    """Return the changes of a plan by their state. ``now`` has the present offsets of the group.
    Each state is a key, even without changes.
    """
    found: dict[State, list[Change]] = {state: [] for state in State}
    for each in plan.changes:
        found[each.state(now.get(Partition(each.topic, each.partition)))].append(each)
    return found


def renamed(
    offsets: Mapping[Partition, Committed], topics: Mapping[str, str]
) -> dict[Partition, Committed]:
    """Return the offsets with renamed topics: ``topics`` maps names at the source to names at the
    target. Other topics keep their names.

    Leader epochs are dropped, because they mean nothing in another cluster. Raises ValueError if
    two topics would get the same name.
    """
    found: dict[Partition, Committed] = {}
    for (topic, partition), committed in offsets.items():
        to = Partition(topics.get(topic, topic), partition)
        if to in found:
            raise ValueError(f"two topics would become {to.topic!r}: the group has offsets of both")
        found[to] = Committed(committed.offset, NO_LEADER_EPOCH, committed.metadata)
    return found


def partitions_of(groups: Iterable[Collection[Partition]]) -> set[Partition]:
    """Return every partition that any of the groups has."""
    return {each for group in groups for each in group}
