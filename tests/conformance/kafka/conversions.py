"""Groups that change their type, and classic members of consumer groups, beyond the numbered cases
of ``consumer_groups``. POLICY= sets the migration policy of all servers.
"""

from __future__ import annotations

from typing import Any

from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.consumer_groups import (
    Member,
    classic_assignment,
    classic_group,
    look,
    members,
    own_interval,
    settled,
)
from tests.conformance.kafka.settings import INITIAL_DELAY_MS, SHORT_MS, TOPIC

EVERYTHING = tuple(range(12))


def subscribed(*owned: int, topic: str = TOPIC) -> list[tuple[str, bytes]]:
    """The protocols of a classic member that says what it owns."""
    held = {TOPIC: [*owned]} if owned else {}
    return [("range", encode_subscription(Subscription(1, [topic], None, held)))]


@edge(115)
def a_classic_member_whose_subscription_cannot_be_read(case: Case) -> None:
    a = Member(case, "a")
    a.join()
    classic = case.person("classic")
    for garbage in (b"", b"\0", b"\0\0\0\0\0\5", b"\xff\xff\0\0\0\0\xff\xff\xff\xff"):
        case.enter(classic, protocols=[("range", garbage)])
    look(case)
    case.enter(classic, protocols=[("range", b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0")])
    look(case)


@edge(84, 120)
def partitions_that_do_not_exist_are_converted_too(case: Case) -> None:
    classic_group(case, (0, 0, 1), (50,))
    a = Member(case, "a")
    a.join()
    look(case)
    a.heartbeat()
    look(case)


@edge()
def a_classic_client_takes_the_place_of_a_static_member_and_back(case: Case) -> None:
    # Both are static, so they come before the id that Kafka draws for the client of version 0.
    a, b = Member(case, "a", instance="i"), Member(case, "b", instance="j")
    a.join()
    b.join()
    settled(case, a, b)
    a.leave(-2)
    classic = case.person("classic")
    case.enter(classic, instance="i")
    look(case)
    case.sync(classic, instance="i")
    case.heartbeat(classic, instance="i")
    a.heartbeat()
    back = Member(case, "back", instance="i")
    back.join()
    look(case)
    case.heartbeat(classic, instance="i")
    settled(case, b, back)
    look(case)


@edge()
def the_last_member_is_replaced_by_a_classic_one(case: Case) -> None:
    a = Member(case, "a", instance="i")
    a.join()
    a.leave(-2)
    classic = case.person("classic")
    case.enter(classic, instance="i")
    case.observe()
    case.sync(classic, instance="i")
    case.heartbeat(classic, instance="i")
    case.observe()


@edge()
def members_of_both_protocols_leave_in_one_request(case: Case) -> None:
    classic_group(case, EVERYTHING)
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    admin = case.person("admin")
    case.leave(admin, (a.id, None), ("nobody", None), (a.id, None), version=5)
    look(case)
    case.leave(admin, (b.id, None), version=5)
    case.observe()


@edge()
def a_classic_member_that_neither_joins_again_nor_syncs(case: Case) -> None:
    a = Member(case, "a")
    a.join()
    classic = case.person("classic")
    # Members without an instance are sorted by their ids, and each side makes up its own.
    case.join(classic, member_id=f"{case.group}-z", rebalance_timeout=SHORT_MS)
    look(case)
    case.wait(SHORT_MS + 500)
    case.heartbeat(classic)
    a.heartbeat()
    look(case)


@edge(small=True)
def a_group_under_another_policy(case: Case) -> None:
    """Both directions, whatever the policy allows."""
    classic = case.person("classic")
    case.join(classic, version=3)  # a group that only knows an id may expire at any moment
    case.wait(INITIAL_DELAY_MS + 500)
    case.sync(classic, {classic: classic_assignment(EVERYTHING, b"")})
    a = Member(case, "a")
    a.join()
    case.observe()
    look(case)
    case.heartbeat(classic)
    a.leave()
    case.observe()
    look(case)
    case.heartbeat(classic)


@edge(small=True)
def a_classic_member_under_another_policy(case: Case) -> None:
    a = Member(case, "a", instance="i")
    a.join()
    classic = case.person("classic")
    case.enter(classic)
    case.sync(classic)
    look(case)
    a.leave()
    case.observe()
    look(case)
    case.heartbeat(classic)


@edge(87, 98)
def a_group_with_an_assignment_interval_of_its_own(case: Case) -> None:
    own_interval(case, 2_000)
    a, b, c = members(case, "a", "b", "c")
    a.join()
    b.join()
    c.join()
    c.leave()
    a.heartbeat()
    look(case)
    case.wait(2_500)
    a.heartbeat()
    look(case)
    settled(case, a, b)
    look(case)


@edge()
def a_member_waits_while_a_static_one_is_replaced(case: Case) -> None:
    """The static member has not given up what the other one waits for."""
    static = Member(case, "a", instance="i")
    static.join()
    waiting, replacing = case.people("waiting", "replacing")
    case.join(waiting, version=9, member_id=f"{case.group}-z")
    static.heartbeat()
    case.join(waiting, version=9)
    case.sync(waiting, version=5)
    static.leave(-2)
    case.join(replacing, version=9, instance="i")
    case.pair.look()


@edge()
def a_static_member_changes_its_protocol_after_another_one_left(case: Case) -> None:
    """The conversion ends the rebalance in which it would get the partitions of the other one."""
    static, leaving = case.people("static", "leaving")
    case.join(static, version=5, instance="i")
    case.join(leaving, version=3)
    case.join(static, version=5, instance="i")
    case.wait_for(*[person for person in (static, leaving) if person.waiting[0]])
    case.sync(leaving)
    shares = {static: range(6), leaving: range(6, 12)}
    assigned = {person: classic_assignment((*share,), b"") for person, share in shares.items()}
    case.sync(static, assigned, version=3, instance="i")
    case.leave(leaving)
    new = Member(case, "new", instance="i")
    new.join()
    look(case)


@edge()
def a_group_that_has_just_become_classic_becomes_a_consumer_group_again(case: Case) -> None:
    """A member waits for partitions that another one has. Nobody may tell it that it has them."""
    a = Member(case, "a")
    a.join()
    first, second = case.people("first", "second")
    case.join(first, version=9, member_id=f"{case.group}-y")
    settled_with(case, first, a)
    case.join(second, version=9, member_id=f"{case.group}-z")
    look(case)
    a.leave()
    b = Member(case, "b")
    b.join()
    look(case)


@edge()
def a_cooperative_member_has_not_yet_joined_without_what_it_must_give_up(case: Case) -> None:
    """It may still read these partitions. The leader has assigned them to nobody."""
    (first,) = classic_group(case, EVERYTHING)
    second = case.person("second")
    case.enter(second)
    case.join(first, protocols=subscribed(*EVERYTHING))
    case.wait_for(second)
    case.sync(second)
    case.sync(first, {first: classic_assignment(EVERYTHING[6:], b"")})
    a = Member(case, "a")
    a.join()
    look(case)
    case.heartbeat(first)


@edge(100)
def a_cooperative_leader_puts_the_data_of_a_member_into_its_assignment(case: Case) -> None:
    classic = case.person("classic")
    metadata = encode_subscription(Subscription(1, [TOPIC], b"sticky", {}))
    case.enter(classic, protocols=[("cooperative-sticky", metadata)])
    assignment = classic_assignment(EVERYTHING, b"sticky")
    case.sync(classic, {classic: assignment}, protocol_name="cooperative-sticky")
    Member(case, "a").join()


@edge()
def a_static_member_changes_its_protocol_under_its_own_id(case: Case) -> None:
    a = Member(case, "a", instance="i")
    a.join()
    classic = case.person("classic")
    case.join(classic, version=9, member_id=a.id, instance="i")
    case.observe()
    look(case)
    case.sync(classic, version=5, instance="i")
    case.heartbeat(classic, instance="i")
    a.join()
    look(case)


@edge()
def a_dynamic_member_changes_its_protocol_under_its_own_id(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    settled(case, a, b)
    classic = case.person("classic")
    for _ in range(2):
        case.join(classic, version=9, member_id=b.id)
        look(case)
    case.sync(classic, version=5)
    case.commit(classic, version=9)
    case.join(case.person("other"), version=9, member_id=a.id)
    case.observe()
    look(case)
    b.join()
    look(case)


@edge()
def a_classic_member_with_another_subscription_replaces_the_last_one(case: Case) -> None:
    """No target is computed for it: the classic group rebalances at once."""
    a = Member(case, "a", instance="i")
    a.join()
    a.leave(-2)
    classic = case.person("classic")
    case.join(classic, version=9, instance="i", protocols=subscribed(topic="absent"))
    case.observe()
    case.sync(classic, version=5, instance="i")
    case.heartbeat(classic, instance="i")
    case.join(classic, version=9, instance="i", protocols=subscribed(topic="absent"))
    case.observe()


@edge()
def a_classic_member_replaces_the_last_one_while_a_target_is_owed(case: Case) -> None:
    a, b = Member(case, "a", instance="i"), Member(case, "b")
    a.join()
    b.join()
    settled(case, a, b)
    b.leave()
    a.leave(-2)
    classic = case.person("classic")
    case.join(classic, version=9, instance="i")
    case.observe()
    case.sync(classic, version=5, instance="i")
    case.join(classic, version=9, instance="i")
    case.observe()


@edge()
def a_classic_member_is_replaced_while_it_has_partitions_to_give_up(case: Case) -> None:
    """Two processes of one instance: the second one may have the partitions, too."""
    a = Member(case, "a")
    a.join()
    first, second = case.people("first", "second")
    case.join(first, version=9, instance="i", protocols=subscribed())
    settled_with(case, first, a, instance="i")
    c = Member(case, "c")
    c.join()
    case.heartbeat(first, instance="i")
    has = range(6)
    case.join(first, version=9, instance="i", protocols=subscribed(*has))
    look(case)
    case.join(second, version=9, instance="i", protocols=subscribed(*has))
    look(case)
    for more in (0, -1, -2):
        generation = second.generation(more)
        case.commit(second, version=9, generation=generation, group_instance_id="i")
    c.heartbeat()
    case.join(second, version=9, instance="i", protocols=subscribed(0, 1))
    look(case)
    for more in (0, -1, -2):
        generation = second.generation(more)
        case.commit(second, version=9, generation=generation, group_instance_id="i")
    c.heartbeat()
    look(case)


def settled_with(case: Case, classic: Any, *group: Member, instance: str | None = None) -> None:
    """Let members of both protocols follow until nobody has to any more."""
    for _ in range(6):
        for each in group:
            each.acknowledge()
        if case.heartbeat(classic, instance=instance).get("error_code"):
            case.join(classic, version=9, instance=instance)
            case.sync(classic, version=5, instance=instance)


@edge()
def a_classic_member_has_time_from_when_it_is_told_to_give_up(case: Case) -> None:
    timeout_ms = 2 * SHORT_MS
    a = Member(case, "a")
    a.join()
    classic = case.person("classic")
    how: dict[str, Any] = {"version": 9, "member_id": f"{case.group}-z"}
    how["rebalance_timeout"] = timeout_ms
    case.join(classic, **how)
    settled_with(case, classic, a)
    case.join(classic, **how)
    case.sync(classic, version=5)
    Member(case, "b").join()
    case.heartbeat(classic)
    case.join(classic, **how, protocols=subscribed(*range(12)))
    case.sync(classic, version=5)
    case.wait(timeout_ms * 2 // 3)
    case.heartbeat(classic)
    case.wait(timeout_ms * 2 // 3)
    case.heartbeat(classic)
    case.wait(timeout_ms * 2 // 3)
    case.heartbeat(classic)
    look(case)


@edge(90)
def an_older_epoch_with_a_topic_of_which_the_member_has_nothing(case: Case) -> None:
    name = f"{case.group}-more"
    topic_id = case.make_topic(name)
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    a.heartbeat()
    a.acknowledge()
    for partitions in ([], [0]):
        entry = {"topic_id": topic_id, "partitions": partitions}
        a.heartbeat(member_epoch=a.epoch - 1, topic_partitions=[*a.owned(), entry])
        a.epoch = a.epoch or 3
    look(case)


@edge(90, 98)
def a_member_that_has_nothing_changes_its_subscription_within_the_interval(case: Case) -> None:
    own_interval(case, 60_000)
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    look(case)
    b.heartbeat(subscribed_topic_names=["absent"])
    look(case)
    b.heartbeat(subscribed_topic_names=[], topic_partitions=[])
    b.heartbeat(member_epoch=1, topic_partitions=[])
    look(case)


@edge()
def a_refused_join_of_an_empty_consumer_group(case: Case) -> None:
    a = Member(case, "a")
    a.join()
    a.commit()
    a.leave()
    classic = case.person("classic")
    case.join(classic, session_timeout=1)
    look(case)
    case.join(classic, version=9, member_id="nobody")
    # Nobody looks here. Kafka removes the group from its memory without a record
    # (GroupMetadataManager.maybeDeleteEmptyConsumerGroup). Its answers show that only once another
    # group has written to the same partition of __consumer_offsets.
    case.join(classic, version=3)
    case.observe()


@edge()
def a_member_that_changed_its_protocol_votes_for_its_assignor(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    settled(case, a, b)
    case.join(case.person("classic"), version=9, member_id=b.id)
    a.heartbeat(server_assignor="uniform")
    a.leave()
    Member(case, "c").join(server_assignor=None)
    look(case)


@edge(58)
def a_classic_member_joins_under_another_instance_id(case: Case) -> None:
    a, b = Member(case, "a"), Member(case, "b", instance="held")
    a.join()
    b.join()
    classic = case.person("classic")
    case.join(classic, version=9, instance="i")
    case.join(classic, version=9, instance="j")
    case.join(classic, version=9, instance="held")
    look(case)
    case.join(classic, version=9)  # by its member id alone
    look(case)
    case.join(classic, version=9, instance="i")
    case.join(case.person("other"), version=9, instance="i")
    look(case)


@edge(58)
def a_dynamic_classic_member_joins_with_an_instance_id(case: Case) -> None:
    Member(case, "a").join()
    classic = case.person("classic")
    case.join(classic, version=9, member_id=f"{case.group}-z")
    case.join(classic, version=9, instance="i")
    look(case)


@edge(113)
def an_id_that_a_consumer_group_only_handed_out(case: Case) -> None:
    a = Member(case, "a")
    a.join()
    classic = case.person("classic")
    version = case.v("join_group", 4)
    assert case.join(classic, version=version)["error_code"] in (79, 23)  # 23: another policy
    look(case)
    a.heartbeat()
    case.heartbeat(classic, generation=a.epoch)
    case.leave(classic)
    case.join(classic, version=version, member_id=f"{case.group}-made-up")
    look(case)
