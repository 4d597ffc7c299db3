"""The judge of ownership: what it allows, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast
from uuid import UUID

import pytest

from tests.helpers.clients.heartbeat_tape import (
    HEARTBEAT,
    HEARTBEAT_KEY,
    Heartbeat,
    Ownership,
    heartbeats,
    removals,
)
from tests.helpers.clients.histories import check_owners
from tests.helpers.clients.members import Host
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.recording_proxy import Frame

FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID = 110, 25
MS = 1_000_000


def of(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("orders", number) for number in numbers)


class Tape:
    """Heartbeats one millisecond after the other, of members with the ids ``id-<name>``."""

    def __init__(self) -> None:
        self.told: list[Heartbeat] = []

    def sent(self, member: str, epoch: int, owned: frozenset[tuple[str, int]] | None) -> None:
        self._tell(member, False, epoch, 0, owned)

    def got(
        self, member: str, given: frozenset[tuple[str, int]] | None = None, error: int = 0
    ) -> None:
        """The answer to the first heartbeat of the member that has none."""
        self._tell(member, True, 1, error, given)

    def _tell(
        self,
        member: str,
        is_answer: bool,
        epoch: int,
        error: int,
        partitions: frozenset[tuple[str, int]] | None,
    ) -> None:
        answered = [each.call for each in self.told if each.is_answer]
        calls = [e.call for e in self.told if e.member == member and e.call not in answered]
        call = calls[0] if is_answer else (len(self.told), 7)
        at_ns = (len(self.told) + 1) * MS
        self.told.append(
            Heartbeat(at_ns, call, is_answer, member, f"id-{member}", epoch, error, partitions)
        )

    def judge(self, **removed_ms: int) -> Ownership:
        return Ownership(self.told, {f"id-{name}": [ms * MS] for name, ms in removed_ms.items()})


@pytest.fixture
def tape() -> Tape:
    """A tape on which a has 0 and 1."""
    tape = Tape()
    tape.sent("a", 0, of())
    tape.got("a", of(0, 1))
    return tape


def given_to_b(tape: Tape) -> None:
    tape.sent("b", 1, None)
    tape.got("b", of(1))


def answered(tape: Tape) -> None:
    tape.got("a")


def unanswered(tape: Tape) -> None:
    """The daemon is killed."""


@pytest.mark.parametrize("then", [answered, unanswered])
def test_a_member_gives_up_what_it_does_not_report(
    tape: Tape, then: Callable[[Tape], None]
) -> None:
    tape.sent("a", 1, of(0))
    then(tape)
    given_to_b(tape)
    assert tape.judge().given == 3


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_member_that_joins_or_leaves_has_nothing(tape: Tape, epoch: int) -> None:
    tape.sent("a", epoch, None)
    given_to_b(tape)
    tape.judge()


@pytest.mark.parametrize(("epoch", "owned"), [(-1, None), (1, of(0))])
def test_a_member_has_given_up_what_the_answer_to_an_earlier_heartbeat_gives(
    tape: Tape, epoch: int, owned: frozenset[tuple[str, int]] | None
) -> None:
    tape.sent("a", 1, of(0, 1))
    tape.sent("a", epoch, owned)
    tape.got("a", of(0, 1))
    tape.got("a")
    given_to_b(tape)
    tape.judge()


def silent(tape: Tape) -> None:
    pass


def told_less(tape: Tape) -> None:
    """It is told to give up 1, and does not say so."""
    tape.sent("a", 1, None)
    tape.got("a", of(0))


def reports_both(tape: Tape) -> None:
    tape.sent("a", 1, of(0, 1))
    tape.got("a")


def is_refused(tape: Tape) -> None:
    """A heartbeat that is refused changes nothing."""
    tape.sent("a", 1, of(0))
    tape.got("a", error=FENCED_MEMBER_EPOCH)


@pytest.mark.parametrize("then", [silent, told_less, reports_both, is_refused])
def test_a_partition_that_is_given_while_it_has_an_owner_is_found(
    tape: Tape, then: Callable[[Tape], None]
) -> None:
    then(tape)
    given_to_b(tape)
    with pytest.raises(AssertionError, match="was given to b while a had it"):
        tape.judge()


def test_a_member_that_was_told_of_its_removal_has_nothing(tape: Tape) -> None:
    tape.sent("a", 1, None)
    tape.got("a", error=UNKNOWN_MEMBER_ID)
    given_to_b(tape)
    tape.judge()


def test_a_member_that_was_removed_and_does_not_know_it_has_nothing(tape: Tape) -> None:
    given_to_b(tape)
    tape.judge(a=3)


@pytest.mark.parametrize("removed_ms", [1, 5])
def test_a_removal_before_a_partition_was_given_or_after_it_moved_allows_nothing(
    tape: Tape, removed_ms: int
) -> None:
    given_to_b(tape)
    with pytest.raises(AssertionError, match="was given to b"):
        tape.judge(a=removed_ms)


class Callbacks:
    """A host whose members told of partition 1: a got it, then b, and then a lost it."""

    died_ns = None

    def __init__(self, at_ms: int) -> None:
        self.events = [
            {"event": "assigned", "name": "a", "at_ns": 2 * MS, "gained": [["orders", 1]]},
            {"event": "assigned", "name": "b", "at_ns": at_ms * MS, "gained": [["orders", 1]]},
            {"event": "lost", "name": "a", "at_ns": 99 * MS, "lost": [["orders", 1]]},
        ]


def test_a_callback_may_be_late_only_if_the_member_had_given_up_the_partition(
    tape: Tape, capsys: pytest.CaptureFixture[str]
) -> None:
    tape.sent("a", 1, of(0))
    given_to_b(tape)
    ownership = tape.judge()
    hosts = [cast("Host", Callbacks(at_ms=6))]
    assert check_owners(hosts, ownership) == 2
    assert "a had given up ('orders', 1) before its callback" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="belongs to a"):
        check_owners(hosts)
    with pytest.raises(AssertionError, match="belongs to a"):
        check_owners([cast("Host", Callbacks(at_ms=2))], ownership)


def test_a_callback_may_be_late_if_the_member_was_removed(tape: Tape) -> None:
    given_to_b(tape)
    hosts = [cast("Host", Callbacks(at_ms=6))]
    assert check_owners(hosts, tape.judge(a=3)) == 2


def test_frames_and_events_are_read() -> None:
    topic = "00000000-0000-0000-0000-000000000007"
    told = {
        "member_id": "id-a",
        "member_epoch": 3,
        "topic_partitions": [{"topic_id": UUID(topic), "partitions": [4]}],
    }
    request = encode_request(HEARTBEAT, 1, told, 9, "a")[4:]
    frame = Frame(HEARTBEAT_KEY, 1, "request", request, 5, 2)
    (heartbeat,) = heartbeats([frame], {topic: "orders"})
    assert heartbeat == Heartbeat(5, (2, 9), False, "a", "id-a", 3, 0, of(4))
    events = [
        {"kind": "member_evicted", "member_id": "x", "ts_ms": 1},
        {"kind": "member_join", "member_id": "z", "replaces": "y", "ts_ms": 2},
        {"kind": "commit", "member_id": "z", "ts_ms": 3},
    ]
    assert removals(events) == {"x": [MS], "y": [2 * MS]}
