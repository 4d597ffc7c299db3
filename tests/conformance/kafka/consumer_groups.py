"""Edge cases of consumer groups: docs/spec/edge-cases.md#edge-83 to #edge-105."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.configs import GROUP, SET, change
from tests.conformance.kafka.pair import Person, Ref
from tests.conformance.kafka.sent import Answer
from tests.conformance.kafka.settings import LONG_MS, SHORT_MS, TOPIC

SESSION_MS = 2 * SHORT_MS
UNCHANGED: dict[str, Any] = {
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}


class Member:
    """A member of the consumer protocol, which does what clients do with the answers.

    Its id is the same on both sides, since clients make it. All choose ``range``, whose result is
    a part of the contract.
    """

    def __init__(self, case: Case, name: str, *topics: str, instance: str | None = None) -> None:
        self.case = case
        self.person = case.person(name)
        self.id = f"{case.group}-{name}"
        self.topics = list(topics or (TOPIC,))
        self.instance = instance
        self.epoch = 0
        self.assigned: dict[str, list[int]] = {}
        """Topic id on Kafka's side -> partitions."""

    def heartbeat(self, *, version: int | None = None, **changes: Any) -> Answer:
        """Heartbeat with the own epoch; a change says what else is in it."""
        values = {
            "member_id": self.id,
            "member_epoch": self.epoch,
            **UNCHANGED,
            "instance_id": self.instance,
            **changes,
        }
        answer = self.case.send(self.person, "consumer_group_heartbeat", version, **values)
        if answer.get("error_code") == 0:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.assigned = {
                    topic["topic_id"]: topic["partitions"]
                    for topic in answer["assignment"]["topic_partitions"]
                }
        return answer

    def join(self, **changes: Any) -> Answer:
        """Join with all that a join has to say."""
        values = {
            "member_epoch": 0,
            "rebalance_timeout": LONG_MS,
            "subscribed_topic_names": self.topics,
            "server_assignor": "range",
            "topic_partitions": [],
        }
        return self.heartbeat(**{**values, **changes})

    def acknowledge(self, **changes: Any) -> Answer:
        """Say that it owns what it was told last, and nothing else."""
        return self.heartbeat(topic_partitions=self.owned(), **changes)

    def owned(self) -> list[dict[str, Any]]:
        """What it was told last, by the ids that each side has."""
        return [
            {"topic_id": self._topic(topic_id), "partitions": partitions}
            for topic_id, partitions in self.assigned.items()
        ]

    def _topic(self, kafka_id: str) -> Ref:
        comparison = self.case.pair.comparison
        return Ref(lambda side: UUID(comparison.of_side(kafka_id, side)), f"<topic {kafka_id}>")

    def leave(self, epoch: int = -1, **changes: Any) -> Answer:
        """Leave, for good or (-2) for a short time."""
        return self.heartbeat(member_epoch=epoch, **changes)

    def commit(self, partitions: tuple[int, ...] = (0,), **how: Any) -> Answer:
        """Commit with the own epoch."""
        version = how.pop("version", self.case.v("offset_commit", 9))
        return self.case.commit(
            self.person,
            **{
                "version": version,
                "generation": self.epoch,
                "member_id": self.id,
                "topics": [self.case.offsets(partitions=partitions)],
                **how,
            },
        )


def members(case: Case, *names: str) -> list[Member]:
    """Several members."""
    return [Member(case, name) for name in names]


def look(case: Case) -> None:
    """Compare what both sides tell of the group."""
    version = case.v("consumer_group_describe")
    case.pair.steps.append("looking at the consumer group")
    case.pair.ask_until_equal(
        "consumer_group_describe",
        version,
        group_ids=[case.group],
        include_authorized_operations=True,
    )
    case.pair.ask_until_equal("list_groups", 5, states_filter=[], types_filter=[])


def settled(case: Case, *group: Member) -> None:
    """Let them heartbeat until nobody is told anything new."""
    for _ in range(8):
        answers = [each.acknowledge() for each in group]
        epochs = {each.epoch for each in group}
        if len(epochs) == 1 and all(answer["assignment"] is None for answer in answers):
            return
    raise AssertionError("the group does not settle")


def configure(case: Case, **values: int) -> None:
    """Set configs of the case's group."""
    keys = {"session": "consumer.session.timeout.ms", "heartbeat": "consumer.heartbeat.interval.ms"}
    changes = [(keys[name], SET, str(value)) for name, value in values.items()]
    asked = change(GROUP, case.group, *changes)
    case.pair.ask("incremental_alter_configs", 1, resources=[asked], validate_only=False)
    case.wait(300)


@edge(85, 89)
def the_first_member_of_a_consumer_group(case: Case) -> None:
    a = Member(case, "a")
    assert a.join()["member_epoch"] == 2
    look(case)
    assert a.heartbeat()["assignment"] is None
    full = a.acknowledge(rebalance_timeout=LONG_MS, subscribed_topic_names=a.topics)
    assert full["assignment"] is not None
    odd = a.acknowledge(rebalance_timeout=-2, subscribed_topic_names=a.topics)
    assert odd["assignment"] is not None
    look(case)
    a.acknowledge(rebalance_timeout=LONG_MS)
    a.heartbeat(rack_id="r")
    a.heartbeat(server_assignor="uniform")
    look(case)


@edge(87, small=True)
def a_second_member_within_the_assignment_interval(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    look(case)
    case.wait(1_200)
    b.heartbeat()
    look(case)
    settled(case, a, b)
    look(case)


def own_interval(case: Case, milliseconds: int) -> None:
    """Give the group an assignment interval of its own."""
    asked = change(GROUP, case.group, ("consumer.assignment.interval.ms", SET, str(milliseconds)))
    case.pair.ask("incremental_alter_configs", 1, resources=[asked], validate_only=False)
    case.wait(300)


@edge()
def a_newcomer_without_topics_while_a_target_is_owed(case: Case) -> None:
    own_interval(case, 3_000)
    a, b, c = members(case, "a", "b", "c")
    a.join()
    b.join()
    look(case)
    case.wait(3_500)
    c.join(version=1, subscribed_topic_names=[])
    look(case)
    a.heartbeat()
    b.heartbeat()
    c.heartbeat()
    look(case)


@edge(88)
def a_partition_moves_to_a_second_member(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    look(case)
    a.heartbeat()
    look(case)
    b.heartbeat()
    a.heartbeat()
    assert a.acknowledge()["assignment"] is None
    look(case)
    b.heartbeat()
    look(case)
    settled(case, a, b)
    look(case)


@edge(88)
def three_members_come_and_go(case: Case) -> None:
    a, b, c = members(case, "a", "b", "c")
    a.join()
    b.join()
    settled(case, a, b)
    c.join()
    a.heartbeat()
    b.leave()
    look(case)
    settled(case, a, c)
    look(case)
    b.join()
    c.leave()
    settled(case, a, b)
    look(case)


@edge(90)
def an_epoch_that_is_not_the_members(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    settled(case, a, b)
    epoch, owned = a.epoch, a.owned()
    for wrong in (epoch + 1, 1, epoch - 1):
        a.heartbeat(member_epoch=wrong)
    b.leave()
    a.heartbeat()
    assert a.epoch > epoch
    a.heartbeat(member_epoch=epoch)
    a.heartbeat(member_epoch=epoch, topic_partitions=owned)
    a.heartbeat(member_epoch=epoch, topic_partitions=[])
    a.heartbeat(member_epoch=epoch - 1, topic_partitions=owned)
    look(case)


@edge(91)
def a_member_joins_again_without_having_left(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    assert a.join()["member_epoch"] == 2
    b.join()
    a.heartbeat()
    look(case)
    a.join()
    look(case)
    settled(case, a, b)
    a.join(subscribed_topic_names=[])
    look(case)


@edge(92)
def members_leave(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.leave()
    a.join()
    b.leave()
    a.heartbeat(member_id="nobody")
    b.join()
    b.leave()
    b.leave()
    look(case)
    a.leave()
    look(case)
    a.heartbeat(member_epoch=2)
    a.join()
    look(case)


@edge(93, 94, 108)
def a_static_member_leaves_for_a_short_time(case: Case) -> None:
    a = Member(case, "a", instance="i")
    other = Member(case, "other", instance="i")
    a.join()
    other.join()
    a.join()
    old = a.epoch
    a.leave(-2)
    look(case)
    a.heartbeat(member_epoch=old)
    case.send(case.person("admin"), "delete_groups", groups_names=[case.group])
    other.join()
    look(case)
    a.heartbeat(member_epoch=old)
    a.heartbeat(member_epoch=old, instance_id=None)
    a.leave(-2)
    a.leave(-1)
    other.heartbeat(instance_id="unknown")
    other.heartbeat(instance_id=None)
    other.leave(-1)
    look(case)


@edge()
def a_static_member_joins_under_another_instance_id(case: Case) -> None:
    """Kafka keeps the old one for it, too, and has no target for it under the new one."""
    a, b, c = Member(case, "a", instance="i"), Member(case, "b"), Member(case, "c", instance="i")
    a.join()
    b.join()
    a.join(instance_id="j")
    c.join()


@edge()
def a_member_joins_with_a_rebalance_timeout_below_minus_one(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join(rebalance_timeout=-2)
    a.heartbeat()
    b.join()
    look(case)
    a.heartbeat()  # has to give up one half, and no time for it
    case.wait(500)
    a.heartbeat()
    b.heartbeat()
    look(case)


@edge()
def a_heartbeat_with_a_rebalance_timeout_below_minus_one(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    for timeout_ms in (-2, -1, -(2**31)):
        a.heartbeat(rebalance_timeout=timeout_ms)
        look(case)
    b.join()
    a.heartbeat()
    case.wait(500)
    a.heartbeat()
    b.heartbeat()
    look(case)


def keep_alive(case: Case, member: Member) -> None:
    """Let the session of all others end. No heartbeat is close to that moment."""
    for wait_ms in (SESSION_MS // 3, SESSION_MS // 3, SESSION_MS * 2 // 3):
        case.wait(wait_ms)
        member.heartbeat()


@edge(95)
def a_static_member_does_not_come_back(case: Case) -> None:
    configure(case, session=SESSION_MS, heartbeat=300)
    a = Member(case, "a", instance="i")
    b = Member(case, "b")
    a.join()
    b.join()
    a.leave(-2)
    keep_alive(case, b)
    b.heartbeat()
    look(case)


@edge()
def a_silent_member_is_fenced(case: Case) -> None:
    configure(case, session=SESSION_MS, heartbeat=300)
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    keep_alive(case, b)
    a.heartbeat()
    b.heartbeat()
    look(case)


@edge()
def a_member_that_gives_nothing_up_is_fenced(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join(rebalance_timeout=SHORT_MS)
    b.join()
    a.heartbeat()
    look(case)
    case.wait(SHORT_MS + 400)
    a.heartbeat()
    b.heartbeat()
    look(case)


@edge(96)
def a_topic_that_comes_later(case: Case) -> None:
    name = f"{case.group}-later"
    a = Member(case, "a", name, TOPIC)
    only = Member(case, "b", name)
    only.join()
    a.join()
    look(case)
    case.make_topic(name)
    settled(case, a, only)
    look(case)


@edge(97)
def members_without_topics(case: Case) -> None:
    a, b = members(case, "a", "b")
    assert a.join(subscribed_topic_names=[])["member_epoch"] == 1
    look(case)
    b.join(subscribed_topic_names=[])
    a.heartbeat(subscribed_topic_names=[TOPIC])
    settled(case, a, b)
    look(case)


@edge(98, small=True)
def a_member_leaves_right_after_its_join(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    b.leave()
    look(case)
    a.heartbeat()
    case.wait(1_200)
    a.heartbeat()
    look(case)


@edge(99)
def a_heartbeat_of_an_absent_or_classic_group(case: Case) -> None:
    a = Member(case, "a")
    for epoch in (1, -1, -2):
        a.heartbeat(member_epoch=epoch, instance_id="i")
    case.stable(case.person("classic"))
    for epoch in (1, -1, -2):
        a.heartbeat(member_epoch=epoch, instance_id="i")
    case.observe()


@edge()
def an_empty_classic_group_becomes_a_consumer_group(case: Case) -> None:
    admin = case.person("admin")
    case.reset(admin)
    a = Member(case, "a")
    a.join()
    look(case)
    case.fetch(admin)
    a.leave()
    case.reset(admin, topics=[case.offsets(offset=9)])
    case.fetch(admin, everything=True)
    look(case)
    case.send(admin, "delete_groups", groups_names=[case.group])
    look(case)


@edge(83, 84)
def members_of_a_consumer_group_commit(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    a.commit()
    a.commit(version=8)
    a.commit(generation=a.epoch + 1)
    a.commit(generation=1)
    a.commit(member_id="nobody")
    a.commit(generation=-1, member_id="")
    old, assigned = a.epoch, a.assigned
    b.join()
    settled(case, a, b)
    (kept,) = a.assigned.values()
    (before,) = assigned.values()
    lost = sorted(set(before) - set(kept))
    a.commit((kept[0],), generation=old)
    a.commit((lost[0],), generation=old)
    a.commit((kept[0], lost[0]), generation=old)
    a.commit((lost[0],))
    b.commit((kept[0],), generation=b.epoch)
    case.fetch(a.person, everything=True)


@edge(74)
def members_of_a_consumer_group_fetch(case: Case) -> None:
    a = Member(case, "a")
    a.join()
    a.commit()
    for member_id, epoch in (
        (a.id, a.epoch),
        (a.id, a.epoch + 1),
        (a.id, 1),
        (None, -1),
        ("", -1),
        ("nobody", a.epoch),
        (a.id, -1),
    ):
        topics = [case.wanted()]
        groups = [
            {
                "group_id": case.group,
                "topics": topics,
                "member_id": member_id,
                "member_epoch": epoch,
            }
        ]
        version = case.v("offset_fetch", 9)
        case.send(a.person, "offset_fetch", version, topics=topics, groups=groups)


@edge(105)
def a_consumer_group_is_administrated(case: Case) -> None:
    admin = case.person("admin")
    a = Member(case, "a")
    a.join()
    a.commit()
    for version in (5, 6):
        case.describe(admin, version=version)
    for states, types in (
        (["stable"], []),
        (["Reconciling"], []),
        ([], ["consumer"]),
        ([], ["classic"]),
        ([" STABLE "], ["CONSUMER"]),
    ):
        case.pair.ask_until_equal("list_groups", 5, states_filter=states, types_filter=types)
    for version in (0, 3, 4):
        case.pair.ask_until_equal("list_groups", version, states_filter=[])
    case.offset_delete(admin)
    case.offset_delete(admin, ("no-such-topic", (0,)))
    case.send(admin, "delete_groups", groups_names=[case.group])
    a.leave()
    case.offset_delete(admin)
    case.fetch(admin, everything=True)
    case.send(admin, "delete_groups", groups_names=[case.group])
    look(case)


# --- both protocols in one group ------------------------------------------------------------------


def classic_assignment(partitions: tuple[int, ...], user_data: bytes) -> bytes:
    """A ConsumerProtocolAssignment, version 0, of the topic that all cases share."""
    numbers = b"".join(p.to_bytes(4, "big") for p in partitions)
    topic = len(TOPIC).to_bytes(2, "big") + TOPIC.encode()
    user = len(user_data).to_bytes(4, "big") + user_data if user_data else b"\xff\xff\xff\xff"
    return b"\0\0\0\0\0\1" + topic + len(partitions).to_bytes(4, "big") + numbers + user


def classic_group(case: Case, *shares: tuple[int, ...], user_data: bytes = b"") -> list[Person]:
    """A stable classic group, whose members have these partitions; the first leads."""
    people = case.people(*(f"classic-{n}" for n in range(len(shares))))
    case.enter(people[0])
    for person in people[1:]:
        case.enter(person)
    if len(people) > 1:
        case.join(people[0])
        case.wait_for(*(p for p in people if p.waiting[0]))
    for person in people[1:]:
        case.sync(person)
    assignments = [classic_assignment(share, user_data) for share in shares]
    case.sync(people[0], dict(zip(people, assignments, strict=True)))
    return people


@edge(100)
def a_classic_group_with_user_data_is_not_converted(case: Case) -> None:
    (classic,) = classic_group(case, (0, 1), user_data=b"data")
    Member(case, "a").join()
    case.heartbeat(classic)
    case.observe()


@edge(119)
def a_classic_group_in_its_first_join_phase_is_not_converted(case: Case) -> None:
    case.enter(case.person("classic"))
    case.join(case.person("other"))
    Member(case, "a").join()
    case.observe()


@edge(120)
def a_classic_group_that_shares_a_partition_is_not_converted(case: Case) -> None:
    first, second = classic_group(case, (0, 1), (1, 2))
    Member(case, "a").join()
    case.heartbeat(first)
    case.heartbeat(second)
    case.observe()


@edge(102)
def a_classic_group_becomes_a_consumer_group_with_members(case: Case) -> None:
    (classic,) = classic_group(case, tuple(range(12)))
    a = Member(case, "a")
    a.join()
    look(case)
    case.heartbeat(classic)
    case.join(classic)
    look(case)
    case.sync(classic)
    case.heartbeat(classic)
    a.heartbeat()
    case.commit(classic)
    look(case)


@edge(103)
def the_last_member_of_the_consumer_protocol_leaves(case: Case) -> None:
    (classic,) = classic_group(case, tuple(range(12)))
    a = Member(case, "a")
    a.join()
    case.heartbeat(classic)
    case.join(classic)
    case.sync(classic)
    a.heartbeat()
    look(case)
    a.leave()
    case.observe()
    look(case)
    case.heartbeat(classic)


@edge(101)
def classic_requests_of_members_of_the_consumer_protocol(case: Case) -> None:
    a = Member(case, "a")
    a.join()
    classic = {"member_id": a.id, "generation": a.epoch}
    case.heartbeat(a.person, **classic)
    case.sync(a.person, **classic)
    look(case)


@edge()
def descriptions_of_groups_that_are_not_consumer_groups(case: Case) -> None:
    case.stable(case.person("classic"))
    for groups in ([case.group], [f"{case.group}-absent"], [""], [case.group, "", case.group], []):
        case.send(
            case.person("admin"),
            "consumer_group_describe",
            group_ids=groups,
            include_authorized_operations=True,
        )


WRONG: tuple[dict[str, Any], ...] = (
    {"member_id": ""},
    {"member_id": " "},
    {"group_id": ""},
    {"group_id": " "},
    {"instance_id": ""},
    {"rack_id": " "},
    {"rebalance_timeout": -1},
    {"topic_partitions": None},
    {"subscribed_topic_names": None},
    {"subscribed_topic_names": None, "subscribed_topic_regex": None},
    {"server_assignor": "sticky"},
    {"server_assignor": ""},
    {"member_epoch": -3},
    {"member_epoch": -2, "instance_id": None},
    {"member_epoch": -(2**31)},
    {"member_epoch": -1, "member_id": ""},
    {"member_epoch": 1, "member_id": ""},
)


@edge()
def heartbeats_that_are_wrong_by_themselves(case: Case) -> None:
    for wrong in WRONG:
        if case.v("consumer_group_heartbeat") == 0 and wrong == {"member_id": ""}:
            continue  # a member of version 0 gets an id of its own on each side
        a = Member(case, "a")
        a.join(**wrong)
    for wrong in ({"group_id": " "}, {"instance_id": " "}, {"server_assignor": "sticky"}):
        Member(case, "a").heartbeat(**{"member_epoch": 5, **wrong})


@edge()
def a_heartbeat_that_owns_what_is_not_its_own(case: Case) -> None:
    a, b = members(case, "a", "b")
    a.join()
    b.join()
    a.heartbeat()
    everything = [{"topic_id": case.pair.topic_id, "partitions": list(range(12))}]
    a.heartbeat(topic_partitions=everything)
    look(case)
    unknown = [{"topic_id": Ref(lambda _: None, "<no topic>"), "partitions": [0]}]
    a.heartbeat(topic_partitions=unknown)
    b.heartbeat(topic_partitions=[])
    look(case)


@edge(121)
def a_member_drops_the_topic_that_it_keeps(case: Case) -> None:
    name = f"{case.group}-more"
    case.make_topic(name, 4)
    a = Member(case, "a", TOPIC, name)
    b = Member(case, "b", TOPIC, name)
    a.join()
    b.join()
    a.heartbeat()
    look(case)
    a.heartbeat(subscribed_topic_names=[TOPIC])
    look(case)
    a.acknowledge()
    look(case)
    b.heartbeat()
    settled(case, a, b)
    look(case)


@edge(114, 122, small=True)
def a_consumer_group_that_is_full(case: Case) -> None:
    a, b = Member(case, "a", instance="i"), Member(case, "b")
    a.join()
    b.join()
    c = Member(case, "c")
    c.join()
    c.heartbeat(member_epoch=4)
    a.leave(-2)
    Member(case, "d", instance="i").join()
    look(case)
