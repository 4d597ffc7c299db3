"""Plans: which committed offsets of which groups are to become what (pure).

Restore, migration and undo share this one format. A plan names, for each partition, the value that
it found (``current``) and the value that is wanted (``target``), so whoever applies it can tell
what is done, what is to do, and what somebody else has changed since. It is undone by the same plan
with the two sides exchanged.

A plan file is one JSON document. Its checksum covers everything but itself, and the plan's id is
the beginning of the checksum: a file that was edited by hand has neither, and is refused.
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
"""Digits of the checksum that make the id of a plan."""

NO_LEADER_EPOCH: Final = -1


class PlanError(ValueError):
    """A file is no plan, or not the plan that was written; the message is one line."""


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Committed(msgspec.Struct, frozen=True):
    """A committed offset, as a group has it."""

    offset: int
    """What was stored, whatever it is: a negative one is restored as it was."""
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""

    def same_as(self, other: Committed) -> bool:
        """Say whether both are one value.

        A leader epoch that one side does not know is no difference: a broker before 2.1 does not
        tell it, and some Kafka-compatible servers drop it.
        """
        epochs = {self.leader_epoch, other.leader_epoch} - {NO_LEADER_EPOCH}
        return self.offset == other.offset and self.metadata == other.metadata and len(epochs) <= 1


class Log(NamedTuple):
    """What the cluster that holds a partition's records allows: its log start and its end.

    Both are None where no cluster holds its records: then nothing is clamped.
    """

    start: int | None = None
    end: int | None = None


class Clamp(StrEnum):
    """Why the target is not what was asked for."""

    NONE = "none"
    """It is."""
    LOG_START = "log_start"
    """The records before the log's start are gone: the target is the start."""
    LOG_END = "log_end"
    """The log is shorter than it was: the target is its end."""
    NO_PARTITION = "no_partition"
    """There is no such partition: nothing is changed, and nothing could be."""


class PlanKind(StrEnum):
    """What a plan is for."""

    RESTORE = "restore"
    MIGRATION = "migration"
    UNDO = "undo"


class State(StrEnum):
    """How far one partition is."""

    UNCHANGED = "unchanged"
    """Nothing is to be done, and nothing was."""
    PENDING = "pending"
    DONE = "done"
    DRIFTED = "drifted"
    """It is neither what the plan found nor what it wants: somebody else committed."""


class Change(msgspec.Struct, frozen=True):
    """One partition of a group: what it is, and what it is to be."""

    topic: str
    partition: int
    current: Committed | None
    target: Committed | None
    """None: no committed offset."""
    delta: int | None
    """Target minus current; None where one of them is none. Negative: records are read again."""
    clamp: Clamp = Clamp.NONE
    wanted: int | None = None
    """The offset that was asked for, where the target is another."""
    log_start: int | None = None
    log_end: int | None = None

    def __post_init__(self) -> None:
        """Refuse a delta that is not the difference."""
        if self.delta != _delta(self.current, self.target):
            raise ValueError(f"{self.topic}-{self.partition}: the delta is not target - current")

    @property
    def changes(self) -> bool:
        """Tell whether anything is to be done."""
        return not _same(self.current, self.target)

    @property
    def asked_for(self) -> int | None:
        """The offset that was asked for, whatever the target became; None for none."""
        if self.clamp is Clamp.NONE:
            return None if self.target is None else self.target.offset
        return self.wanted

    def state(self, now: Committed | None) -> State:
        """How far it is, given what the coordinator has now."""
        if _same(now, self.target):
            return State.DONE if self.changes else State.UNCHANGED
        return State.PENDING if _same(now, self.current) else State.DRIFTED

    def undone(self) -> Change:
        """Return the way back."""
        return change(Partition(self.topic, self.partition), self.target, self.current)


class GroupPlan(msgspec.Struct, frozen=True):
    """All partitions of one group, those that stay as they are too."""

    group: str
    changes: tuple[Change, ...]

    @property
    def to_do(self) -> Iterator[Change]:
        """The partitions that are to change."""
        return (each for each in self.changes if each.changes)


class Content(msgspec.Struct, frozen=True):
    """What a plan says; its checksum is over this."""

    kind: PlanKind
    created_ms: int
    source: str
    """Where the wanted offsets come from, for a person: a log, or a server."""
    server: str
    """The coordinator that is to be changed, HOST:PORT."""
    data: str
    """What the targets were clamped to, for a person."""
    groups: tuple[GroupPlan, ...]
    as_of_ms: int | None = None
    """The moment that a restore goes back to."""
    undoes: str | None = None
    """The id of the plan that this one takes back."""
    topics: dict[str, str] = {}
    """Of a migration: the source's name of a topic -> the target's, where they differ."""


class Plan(msgspec.Struct, frozen=True):
    """A plan with its id and checksum. Made by ``sealed``, ``undo`` and ``decode`` alone."""

    id: str
    checksum: str
    content: Content

    @property
    def client_id(self) -> str:
        """Return the client id that says in the event log which plan a commit belongs to."""
        return f"groupkeeper-restore/{self.id}"

    def undo(self, created_ms: int) -> Plan:
        """Return the plan that takes this one back, exactly: no clamp, whatever the log holds."""
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
                data="not clamped: what is restored is what was there",
            )
        )

    def encode(self) -> bytes:
        """Return the content of a plan file, to be read by people too."""
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
    """What stays where it is in every version."""

    format: str = ""
    version: int = 0


def sealed(content: Content) -> Plan:
    """Give a plan its checksum and its id."""
    checksum = hashlib.sha256(msgspec.json.encode(content)).hexdigest()
    return Plan(checksum[:ID_LENGTH], f"sha256:{checksum}", content)


def decode(data: bytes) -> Plan:
    """Read a plan file. Raises PlanError."""
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise PlanError(
                "this is no plan: make one with `groupkeeper pipeline restore` or `migrate`"
            )
        if head.version != FORMAT_VERSION:
            raise PlanError(
                f"a plan of format version {head.version}, and this program knows "
                f"{FORMAT_VERSION}: use the program that wrote it, or make the plan again"
            )
        read = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"this is no plan: {error}") from None
    plan = sealed(read.plan)
    if (plan.id, plan.checksum) != (read.id, read.checksum):
        raise PlanError(
            f"the checksum of plan {read.id} does not fit what it says: it was changed after it "
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
    """Plan how a group gets from ``current`` to ``wanted``, clamped to ``logs``.

    A partition with a current offset and no wanted one loses it. ``logs`` holds every partition
    that exists; what is not in it stays as it is.
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
        # a coordinator refuses a commit for what does not exist
        return change(partition, current, current, wanted=wanted, clamp=Clamp.NO_PARTITION)
    target, clamp = wanted, Clamp.NONE
    if wanted is not None and wanted.offset >= 0:
        if log.start is not None and wanted.offset < log.start:
            target, clamp = _moved(wanted, log.start), Clamp.LOG_START
        elif log.end is not None and wanted.offset > log.end:
            target, clamp = _moved(wanted, log.end), Clamp.LOG_END
    return change(partition, current, target, wanted=wanted, clamp=clamp, log=log)


def _moved(wanted: Committed, offset: int) -> Committed:
    # the leader epoch told of the record before the wanted offset, not before this one
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
    """Make a change with its delta."""
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


# --- how far it is --------------------------------------------------------------------------------


def progress(plan: GroupPlan, now: Mapping[Partition, Committed]) -> dict[State, list[Change]]:
    """Sort the partitions of a group by how far they are; every state is a key."""
    found: dict[State, list[Change]] = {state: [] for state in State}
    for each in plan.changes:
        found[each.state(now.get(Partition(each.topic, each.partition)))].append(each)
    return found


def renamed(
    offsets: Mapping[Partition, Committed], topics: Mapping[str, str]
) -> dict[Partition, Committed]:
    """Map the topics of a source to those of a target; a topic that is not named keeps its name.

    Leader epochs are those of the source's cluster and mean nothing in another: they go. Raises
    ValueError where two partitions would become one.
    """
    found: dict[Partition, Committed] = {}
    for (topic, partition), committed in offsets.items():
        to = Partition(topics.get(topic, topic), partition)
        if to in found:
            raise ValueError(f"two topics would become {to.topic!r}: the group has offsets of both")
        found[to] = Committed(committed.offset, NO_LEADER_EPOCH, committed.metadata)
    return found


def partitions_of(groups: Iterable[Collection[Partition]]) -> set[Partition]:
    """Every partition that any of the groups has."""
    return {each for group in groups for each in group}
