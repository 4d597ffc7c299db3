"""Edge cases of members that subscribe by regular expression: docs/spec/edge-cases.md#edge-86 and
#edge-112.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.consumer_groups import Member, look, settled
from tests.conformance.kafka.sent import Answer

RESOLVED_MS = 600
"""Kafka resolves a pattern beside the requests, and records the result later."""
MIN_INTERVAL_MS = 10_000
VERSION = 1
"""The first one with patterns."""


def join(member: Member, pattern: str, **changes: Any) -> Answer:
    """Join with a pattern alone."""
    return member.join(
        version=VERSION,
        **{"subscribed_topic_names": [], "subscribed_topic_regex": pattern, **changes},
    )


@edge(86)
def the_first_member_has_only_a_pattern(case: Case) -> None:
    case.make_topic(f"{case.group}-one", 2)
    a = Member(case, "a")
    assert join(a, f"{case.group}-.*")["member_epoch"] == 1
    case.wait(RESOLVED_MS)
    a.heartbeat()
    assert a.assigned
    look(case)
    a.heartbeat(version=VERSION, subscribed_topic_regex="")
    look(case)


@edge()
def patterns_that_are_refused(case: Case) -> None:
    a = Member(case, "a")
    for pattern in ("(", "[", "*", "a{2,1}", "(?<n>a)(?<n>b)"):
        join(a, pattern)
    a.join(version=VERSION)
    a.heartbeat(version=VERSION, subscribed_topic_regex="(")
    look(case)


@edge(112)
def a_second_member_brings_a_new_pattern(case: Case) -> None:
    case.make_topic(f"{case.group}-one", 2)
    case.make_topic(f"{case.group}-two", 2)
    a, b = Member(case, "a"), Member(case, "b")
    join(a, f"{case.group}-one")
    case.wait(RESOLVED_MS)
    a.heartbeat()
    join(b, f"{case.group}-two")
    case.wait(RESOLVED_MS)
    b.heartbeat()
    look(case)
    case.wait(MIN_INTERVAL_MS)
    b.heartbeat()
    case.wait(RESOLVED_MS)
    b.heartbeat()
    settled(case, a, b)
    look(case)


@edge(112)
def the_only_member_changes_its_pattern(case: Case) -> None:
    """Within ten seconds, the heartbeat after it begins the resolution."""
    case.make_topic(f"{case.group}-one", 2)
    case.make_topic(f"{case.group}-two", 2)
    a = Member(case, "a")
    join(a, f"{case.group}-one")
    case.wait(RESOLVED_MS)
    a.heartbeat()
    a.heartbeat(version=VERSION, subscribed_topic_regex=f"{case.group}-two")
    case.wait(RESOLVED_MS)
    look(case)
    a.acknowledge()
    case.wait(RESOLVED_MS)
    look(case)
    a.acknowledge()
    look(case)


@edge(86)
def a_pattern_that_matches_nothing(case: Case) -> None:
    a, b = Member(case, "a"), Member(case, "b")
    join(a, f"{case.group}-.*")
    case.wait(RESOLVED_MS)
    look(case)
    a.heartbeat()
    join(b, f"{case.group}-.*")
    look(case)
    a.heartbeat(version=VERSION, subscribed_topic_regex="")
    look(case)


@edge()
def a_classic_member_replaces_one_with_a_pattern(case: Case) -> None:
    """It has no pattern any more."""
    case.make_topic(f"{case.group}-one", 2)
    a, b = Member(case, "a", instance="i"), Member(case, "b")
    join(a, f"{case.group}-.*")
    case.wait(RESOLVED_MS)
    a.heartbeat()
    b.join()
    a.leave(-2)
    classic = case.person("classic")
    case.join(classic, version=9, instance="i")
    look(case)
    b.heartbeat()
    case.heartbeat(classic, instance="i")
    look(case)


@edge()
def the_only_member_changes_to_a_pattern_that_matches_nothing(case: Case) -> None:
    case.make_topic(f"{case.group}-one", 2)
    a = Member(case, "a")
    join(a, f"{case.group}-one")
    case.wait(RESOLVED_MS)
    a.heartbeat()
    a.heartbeat(version=VERSION, subscribed_topic_regex=f"{case.group}-none")
    case.wait(RESOLVED_MS)
    look(case)
    a.acknowledge()
    case.wait(RESOLVED_MS)
    look(case)
    a.acknowledge()
    look(case)


@edge()
def one_of_two_changes_to_a_pattern_that_matches_nothing(case: Case) -> None:
    case.make_topic(f"{case.group}-one", 2)
    case.make_topic(f"{case.group}-two", 2)
    a, b = Member(case, "a"), Member(case, "b", f"{case.group}-one")
    join(a, f"{case.group}-(one|two)")
    case.wait(RESOLVED_MS)
    a.heartbeat()
    b.join()
    settled(case, a, b)
    look(case)
    case.wait(MIN_INTERVAL_MS)
    a.heartbeat(version=VERSION, subscribed_topic_regex=f"{case.group}-none")
    case.wait(RESOLVED_MS)
    look(case)
    a.acknowledge()
    case.wait(RESOLVED_MS)
    b.heartbeat()
    look(case)
    a.acknowledge()
    b.heartbeat()
    look(case)


@edge()
def one_of_two_of_one_topic_changes_to_a_pattern_that_matches_nothing(case: Case) -> None:
    case.make_topic(f"{case.group}-one", 2)
    a, b = Member(case, "a"), Member(case, "b", f"{case.group}-one")
    join(a, f"{case.group}-one")
    case.wait(RESOLVED_MS)
    a.heartbeat()
    b.join()
    settled(case, a, b)
    look(case)
    case.wait(MIN_INTERVAL_MS)
    a.heartbeat(version=VERSION, subscribed_topic_regex=f"{case.group}-none")
    case.wait(RESOLVED_MS)
    look(case)
    a.acknowledge()
    case.wait(RESOLVED_MS)
    b.heartbeat()  # ours begins to follow the new epoch here, which the case does not
