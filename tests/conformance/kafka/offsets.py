"""Edge cases of offsets and administration: docs/spec/edge-cases.md#edge-60 to #edge-80 and
#edge-106 to #edge-110.
"""

from __future__ import annotations

import uuid

from tests.conformance.kafka.case import SUBSCRIPTION, Case, edge
from tests.conformance.kafka.pair import PARKED, Ref
from tests.conformance.kafka.settings import INITIAL_DELAY_MS, PARTITIONS, SHORT_MS, TOPIC
from tests.helpers.wire.raw_client import RawClient

ABSENT = "absent"


@edge(60)
def a_commit_of_unknown_topics_asks_nobody(case: Case) -> None:
    a = case.person("a")
    case.commit(a, generation=9, member_id="bogus", topics=[case.offsets(ABSENT)])
    case.commit(a, generation=9, member_id="bogus", topics=[])
    case.commit(a, generation=9, member_id="bogus", topics=[case.offsets(partitions=(12, -1))])
    case.describe(a, version=6)
    # Only the known topic of several reaches the coordinator.
    several = [case.offsets(ABSENT), case.offsets(partitions=(0, PARTITIONS, 1))]
    case.commit(a, generation=9, member_id="bogus", topics=several)
    case.reset(a, topics=several)
    case.fetch(a, everything=True)


@edge(61)
def a_generation_without_a_group(case: Case) -> None:
    a = case.person("a")
    for n, (generation, member_id) in enumerate(((0, ""), (5, "x"), (0, "x"), (2**31 - 1, ""))):
        group = f"{case.group}-{n}"
        answer = case.commit(a, generation=generation, member_id=member_id, group_id=group)
        code = answer["topics"][0]["partitions"][0]["error_code"]
        assert code == (69 if case.v("offset_commit") >= 9 else 22)
        case.describe(a, group, version=6)
    for n, (generation, member_id) in enumerate(((-1, "x"), (-2, ""), (-(2**31), "x"))):
        group = f"{case.group}-negative-{n}"
        case.commit(a, generation=generation, member_id=member_id, group_id=group)
        case.observe(group)


@edge(62, 63)
def commits_to_an_empty_group(case: Case) -> None:
    a = case.person("a")
    case.stable(a)
    case.commit(a)
    case.leave(a)
    answer = case.commit(a)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 25
    case.commit(a, generation=a.generation(1))
    case.commit(a, generation=0, member_id="")
    answer = case.commit(a, generation=-1, member_id="foo", topics=[case.offsets(offset=70)])
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    case.commit(a, generation=-1, member_id="", group_instance_id="i-1")
    case.observe()


@edge(64, 65)
def commits_in_every_state(case: Case) -> None:
    a, b = case.people("a", "b")
    ways = (
        (a.generation(), a.id),
        (a.generation(-1), a.id),
        (a.generation(1), a.id),
        (-1, a.id),
        (-1, ""),
        (a.generation(), ""),
        (a.generation(), "other"),
    )

    def commit_all() -> None:
        for n, (generation, member_id) in enumerate(ways):
            topics = [case.offsets(offset=10 * n)]
            case.commit(a, generation=generation, member_id=member_id, topics=topics)
            if n == 0:
                version = case.v("offset_commit", 7)
                case.commit(a, version=version, group_instance_id="i-1", topics=topics)
                case.commit(a, generation=-1, member_id="", group_instance_id="i-1")
        case.fetch(a)

    case.enter(a)
    commit_all()  # CompletingRebalance
    case.sync(a, {a: b"1"})
    commit_all()  # Stable
    case.enter(b)
    commit_all()  # PreparingRebalance
    case.observe()


@edge(64)
def a_commit_keeps_the_session(case: Case) -> None:
    a = case.person("a")
    case.enter(a, session_timeout=SHORT_MS, rebalance_timeout=2 * SHORT_MS)
    case.sync(a, {a: b"1"})
    for _ in range(3):
        case.wait(SHORT_MS // 2)
        case.commit(a)
    case.heartbeat(a)
    case.wait(SHORT_MS + 500)
    case.commit(a)
    case.observe()


@edge(66, 67)
def metadata_and_negative_offsets(case: Case) -> None:
    a = case.person("a")
    topics = [case.offsets()]
    for n, text in enumerate(("x" * 4096, "x" * 4097, None, "\N{SNOWMAN}" * 4096)):
        topics[0]["partitions"].append(
            {
                "partition_index": 2 + n,
                "committed_offset": n,
                "committed_leader_epoch": -1,
                "committed_metadata": text,
            }
        )
    case.reset(a, topics=topics)
    case.fetch(a, everything=True)
    case.fetch(a, topics=[case.wanted(partitions=range(7))])
    for offset in (-7, -1, 0, 2**63 - 3, -(2**63)):
        case.reset(a, topics=[case.offsets(offset=offset)])
        case.fetch(a)
    epochs = [case.offsets()]
    for n, part in enumerate(epochs[0]["partitions"]):
        part["committed_leader_epoch"] = 4 * n
    case.reset(a, topics=epochs)
    case.fetch(a)
    twice = [case.offsets(partitions=(0, 0), offset=1), case.offsets(offset=50)]
    case.reset(a, topics=twice)
    case.observe()


@edge()
def a_topic_named_twice(case: Case) -> None:
    """In one entry and in two; known, unknown and beyond the last partition."""
    a = case.person("a")
    beyond = (PARTITIONS, 3)
    for topics in (
        [case.offsets(partitions=(0, 0), offset=9)],
        [case.offsets(partitions=(0, 1), offset=20), case.offsets(partitions=(1, 2), offset=10)],
        [case.offsets(partitions=beyond, offset=30), case.offsets(partitions=beyond, offset=25)],
        [case.offsets(ABSENT), case.offsets(offset=40), case.offsets(ABSENT), case.offsets()],
        [case.offsets(), case.offsets(metadata="x" * 4097), case.offsets(offset=50)],
    ):
        case.reset(a, topics=topics)
        case.fetch(a, everything=True)
    case.fetch(a, topics=[case.wanted(), case.wanted(partitions=(1, 1, 2))])
    case.fetch(a, topics=[case.wanted(ABSENT), case.wanted(), case.wanted(ABSENT)])
    case.commit(a, generation=3, member_id="x", topics=[case.offsets(), case.offsets(ABSENT)] * 2)


@edge()
def a_topic_without_partitions(case: Case) -> None:
    """Known and unknown, alone and beside others that are stored, rejected early or late."""
    a = case.person("a")
    bare, nowhere = case.offsets(partitions=()), case.offsets(ABSENT, partitions=())
    beyond = case.offsets(partitions=(PARTITIONS,))
    for topics in (
        [bare],
        [nowhere],
        [bare, nowhere, bare, nowhere],
        [bare, case.offsets(offset=10)],
        [case.offsets(offset=15), bare, nowhere],
        [beyond, bare, nowhere],
        [bare, case.offsets(ABSENT), nowhere, case.offsets(offset=20), beyond],
        [case.offsets(metadata="x" * 4097), bare, nowhere],
    ):
        case.reset(a, topics=topics)
        case.commit(a, generation=3, member_id="x", topics=topics)
        case.fetch(a, everything=True)


@edge(68)
def commits_and_fetches_by_topic_id(case: Case) -> None:
    a = case.person("a")
    zero = Ref(lambda _: None, "<no id>")
    unknown = Ref(lambda _: uuid.UUID(int=9), "<strange id>")
    three = [case.offsets(topic_id=zero), case.offsets(), case.offsets(topic_id=unknown)]
    case.reset(a, version=10, topics=three)
    case.reset(a, version=10, topics=[case.offsets(topic_id=zero)])
    case.observe()
    wanted = [case.wanted(topic_id=zero), case.wanted(), case.wanted(topic_id=unknown)]
    case.fetch(a, version=10, topics=wanted)
    case.fetch(a, version=10, everything=True)


@edge(69)
def a_topic_made_anew(case: Case) -> None:
    a = case.person("a")
    name = f"{case.group}-topic"

    first = case.make_topic(name)
    case.reset(a, topics=[case.offsets(name, topic_id=first), case.offsets()])
    case.fetch(a, everything=True)
    for port in case.pair.ports:
        with RawClient(port) as admin:
            admin.call("delete_topics", 5, topic_names=[name], timeout=20_000)
    case.wait(1_000)
    case.observe()
    case.fetch(a, version=10, topics=[case.wanted(name, topic_id=first)])
    second = case.make_topic(name)
    case.fetch(a, version=10, topics=[case.wanted(name, topic_id=second)])
    case.fetch(a, version=10, topics=[case.wanted(name, topic_id=first)])
    case.fetch(a, topics=[case.wanted(name, topic_id=second)])
    case.reset(a, topics=[case.offsets(name, topic_id=second)])
    case.observe()


@edge(70, 71, 72, 73)
def fetches_of_what_is_not_there(case: Case) -> None:
    a, b = case.people("a", "b")
    case.fetch(a)
    case.fetch(a, everything=case.v("offset_fetch") >= 2)
    case.reset(a)
    case.fetch(a, topics=[case.wanted(ABSENT), case.wanted(partitions=(0, 5, 99, -1))])
    case.fetch(a, topics=[case.wanted(partitions=())])
    case.fetch(a, require_stable=True)
    case.stable(b)
    version = case.v("offset_fetch", 8)
    topics = [case.wanted()]
    many = [
        {"group_id": case.group, "topics": topics, "member_id": "garbage", "member_epoch": 4},
        {"group_id": case.group, "topics": None, "member_id": "", "member_epoch": -1},
        {"group_id": case.group, "topics": topics, "member_id": None, "member_epoch": 9},
        {"group_id": f"{case.group}-absent", "topics": None},
        {"group_id": f"{case.group}-absent", "topics": topics},
        {"group_id": case.group, "topics": []},
    ]
    for stable in (False, True):
        case.send(a, "offset_fetch", version, groups=many, require_stable=stable)
    case.send(a, "offset_fetch", version, groups=[])


@edge(70)
def the_group_without_a_name(case: Case) -> None:
    """All levels share it: only what does not depend on the others is asked."""
    a = case.person("a")
    case.reset(a, group_id="", topics=[case.offsets(partitions=(case.level,), offset=3)])
    case.fetch(a, group="", topics=[case.wanted(partitions=(case.level,))])
    case.describe(a, "")
    told = []
    for port in case.pair.ports:
        with RawClient(port) as client:
            groups = client.call("list_groups", 5)["groups"]
        told.append({"groups": [one for one in groups if one["group_id"] == ""]})
    assert told[0]["groups"]
    case.pair.comparison.compare("is it listed?", "the group of no name", 5, *told)
    for api in ("join_group", "sync_group", "heartbeat", "leave_group"):
        case.send(
            a,
            api,
            group_id="",
            member_id="x",
            session_timeout=20_000,
            rebalance_timeout=20_000,
            protocol_type="consumer",
            protocol_name="range",
            generation_id=1,
            members=[{"member_id": "x"}],
        )


@edge(106, small=True)
def the_group_without_a_name_where_nobody_made_it(case: Case) -> None:
    """On the other pair it is there."""
    a = case.person("a")
    case.send(a, "delete_groups", groups_names=["", f"{case.group}-absent", ""])
    case.describe(a, "", version=5)
    case.describe(a, "", version=6)
    case.fetch(a, group="")
    case.send(a, "offset_delete", group_id="", topics=[])


@edge(77)
def offset_deletes_in_the_first_rebalance(case: Case) -> None:
    a, b = case.people("a", "b")
    both = ((TOPIC, (0,)), (ABSENT, (0,)))
    case.enter(a)
    case.offset_delete(b, *both)  # CompletingRebalance: the subscription is known
    case.sync(a, {a: b"1"})
    assert case.enter(b) is PARKED
    case.offset_delete(a, *both)
    case.observe()


@edge(77, small=True)
def offset_deletes_in_the_initial_delay(case: Case) -> None:
    a, b = case.people("a", "b")
    case.reset(b)  # otherwise the expiry pass deletes the empty group
    assert case.enter(a) is PARKED
    answer = case.offset_delete(b, (TOPIC, (0,)), (ABSENT, (0,)))
    assert answer["topics"][1]["partitions"][0]["error_code"] == 86
    case.wait(2 * INITIAL_DELAY_MS)
    case.offset_delete(b)


@edge(77)
def offset_deletes_where_subscriptions_are_unreadable(case: Case) -> None:
    a, b = case.people("a", "b")
    for n, data in enumerate((b"", b"\0", SUBSCRIPTION[:-3], b"\0\7" + SUBSCRIPTION[2:])):
        group = f"{case.group}-{n}"
        case.enter(a, member_id="", version=3, group_id=group, protocols=(("range", data),))
        case.sync(a, {a: b"1"}, group_id=group)
        case.commit(a, group_id=group)
        case.send(
            b,
            "offset_delete",
            group_id=group,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        )
        case.observe(group)


@edge(78, 79)
def offset_deletes_by_type_of_group(case: Case) -> None:
    a, b = case.people("a", "b")
    some = ((TOPIC, (0, PARTITIONS - 1, PARTITIONS, -1)), (ABSENT, (0,)))
    case.offset_delete(b, *some)
    case.reset(b)
    case.offset_delete(b, *some)
    case.offset_delete(b, (TOPIC, ()))
    case.offset_delete(b, (TOPIC, (1, 1)))
    case.offset_delete(b, (TOPIC, (0,)), (TOPIC, (1,)))
    case.offset_delete(b, (ABSENT, ()))
    for topics in (
        ((ABSENT, (0,)), (ABSENT, (1,))),
        ((TOPIC, (90,)), (TOPIC, (91,))),
        ((TOPIC, (0,)), (TOPIC, (91,)), (TOPIC, (1,))),
        ((TOPIC, (0,)), (ABSENT, (0,)), (TOPIC, (1,)), (ABSENT, (0, 1))),
    ):
        case.offset_delete(b, *topics)
    case.observe()
    case.enter(a, protocol_type="connect")
    case.sync(a, {a: b"1"}, protocol_type="connect")
    assert case.offset_delete(b)["error_code"] == 68
    case.offset_delete(b, (ABSENT, (0,)))
    case.leave(a)
    case.offset_delete(b, *some)
    case.observe()


@edge(80, small=True)
def a_commit_with_a_retention_of_its_own(case: Case) -> None:
    a = case.person("a")
    version = min(case.v("offset_commit"), 4)
    topics = [case.offsets(partitions=(0,))]
    case.reset(a, version=version, topics=topics, retention_ms=1)
    case.reset(a, version=version, topics=[case.offsets(partitions=(1,))], retention_ms=-1)
    case.reset(a, version=version, topics=[case.offsets(partitions=(2,))], retention_ms=1)
    case.reset(a, topics=[case.offsets(partitions=(2,))])
    case.reset(a, version=version, topics=[case.offsets(partitions=(3,))], retention_ms=-2)
    case.wait(2_600)
    case.observe()
    case.offset_delete(a, (TOPIC, (1, 2)))
    case.wait(2_600)  # the expiry pass deletes an empty group without offsets
    case.describe(a, version=6)


@edge(80)
def a_commit_whose_retention_is_over_is_read_until_the_next_pass(case: Case) -> None:
    """Here there is none."""
    a = case.person("a")
    case.reset(a, version=min(case.v("offset_commit"), 4), retention_ms=1)
    case.wait(50)
    answer = case.fetch(a, version=7)
    assert answer["topics"][0]["partitions"][0]["committed_offset"] == 5
    case.observe()


@edge(106)
def group_deletes_of_every_kind(case: Case) -> None:
    a, b = case.people("a", "b")
    empty, full, pending = (f"{case.group}-{n}" for n in ("empty", "full", "pending"))
    case.reset(a, group_id=empty)
    case.enter(a, group_id=full)
    case.join(b, version=case.v("join_group", 4), group_id=pending)
    names = [empty, full, pending, f"{case.group}-absent", empty]
    case.send(a, "delete_groups", groups_names=names)
    case.send(a, "delete_groups", groups_names=names)
    case.send(a, "delete_groups", groups_names=[])
    case.observe(empty, full, pending)
    case.leave(a, group_id=full)
    case.send(a, "delete_groups", groups_names=[full])
    case.observe(full)
    case.enter(a, member_id="", group_id=full)  # a fresh group: generation 1


@edge(107)
def listings_by_state_and_type(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    case.stable(a)
    case.enter(b, group_id=f"{case.group}-connect", protocol_type="connect")
    case.reset(c, group_id=f"{case.group}-simple")
    case.pair.ask_until_equal("list_groups", 5)
    version = case.v("list_groups")
    spaces = ["\0Stable\x1f"], ["\u2003Stable"], ["Stable\u00a0"]
    for states in ([], ["Stable"], [" sTaBle "], *spaces, ["Empty", "Dead"], ["nonsense"], [""]):
        for types in ([], ["classic"], ["CLASSIC"], [" classic"], ["consumer"], ["nonsense"]):
            case.send(a, "list_groups", version, states_filter=states, types_filter=types)


@edge(109, 110)
def lookups_of_coordinators(case: Case) -> None:
    a = case.person("a")
    keys = [case.group, "", case.group]
    old = min(case.v("find_coordinator"), 5)
    for kind, version in ((0, None), (2, old), (3, None), (-1, None)):
        case.send(
            a, "find_coordinator", version, key=case.group, key_type=kind, coordinator_keys=keys
        )
    case.send(a, "find_coordinator", key="", key_type=0, coordinator_keys=[])
    topic_id = "_-" + 20 * "A"
    version = case.v("find_coordinator", 6)
    share = [f"{group}:{topic_id}:0" for group in ("g", "g:h", ":")]
    case.send(a, "find_coordinator", version, key_type=2, coordinator_keys=share)


@edge()
def lookups_with_keys_that_no_share_group_has(case: Case) -> None:
    version = case.v("find_coordinator", 6)
    case.send(case.person("a"), "find_coordinator", version, key_type=2, coordinator_keys=["g"])


@edge(63, 66)
def what_takes_more_than_16_bits_counts_double(case: Case) -> None:
    """The length of metadata, in the units of Java's strings."""
    a = case.person("a")
    face = "\N{GRINNING FACE}"
    for text in (face * 2_048, face * 2_049, "x" + face * 2_047 + "x", "x" + face * 2_048):
        case.reset(a, topics=[case.offsets(metadata=text)])
    case.observe()


@edge()
def topics_are_answered_in_the_order_asked(case: Case) -> None:
    """In no other order, that of their names for instance."""
    a = case.person("a")
    names = [f"{case.group}-{letter}" for letter in "cab"]
    ids = [case.make_topic(name) for name in names]
    for n, order in enumerate(((0, 1, 2), (2, 0, 1), (1, 2, 0))):
        topics = [case.offsets(names[k], (1, 0), offset=n, topic_id=ids[k]) for k in order]
        case.reset(a, topics=topics)
        case.commit(a, generation=3, member_id="x", topics=topics)
    case.fetch(a, everything=True)


@edge()
def the_coordinator_of_transactions(case: Case) -> None:
    """Kafka makes a topic when it is first asked, and has none until then."""
    how = {"key": case.group, "key_type": 1, "coordinator_keys": [case.group, case.group]}
    with RawClient(case.pair.ports[0]) as client:
        for _ in range(100):
            if client.call("find_coordinator", 3, **how)["error_code"] == 0:
                break
            case.wait(100)
    case.pair.ask("find_coordinator", case.v("find_coordinator", 1), **how)


@edge(105)
def descriptions_of_every_state(case: Case) -> None:
    a, b, c = case.people("a", "b", "c")
    simple, pending = f"{case.group}-simple", f"{case.group}-pending"
    case.reset(c, group_id=simple)
    case.join(c, version=case.v("join_group", 4), group_id=pending)
    names = [case.group, simple, pending, f"{case.group}-absent", simple]

    def look() -> None:
        for more in (False, True):
            case.send(c, "describe_groups", groups=names, include_authorized_operations=more)

    case.enter(a)
    look()
    case.sync(a, {a: b"1"})
    look()
    case.enter(b)
    look()
    case.join(a)
    look()
