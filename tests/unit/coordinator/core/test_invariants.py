"""Each invariant is really looked at: the check fails when one thing is wrong, and says what."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from groupkeeper.coordinator.core.classic.group import MAX_GENERATION, ClassicGroup
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.shard import Shard
from tests.helpers.core.invariants import check
from tests.helpers.core.shard_driver import (
    ShardDriver,
    a_member,
    a_stable_group,
    completing,
    protocols,
)

Break = Callable[[ClassicGroup], object]


def first(group: ClassicGroup):
    return next(iter(group.members.values()))


def set_state(state: GroupState) -> Break:
    return lambda group: setattr(group, "state", state)


def save(**changes) -> Break:
    return lambda group: setattr(group, "saved", msgspec.structs.replace(group.saved, **changes))


def drop_support(group: ClassicGroup) -> None:
    group.support["range"] -= 1


def offer_twice(group: ClassicGroup) -> None:
    group.set_protocols(first(group), protocols("range", "other", "other"))


def offer_nothing_in_common(group: ClassicGroup) -> None:
    group.state = GroupState.PREPARING_REBALANCE
    group.join_phase.at = group.join_phase.queued_at = 99_999
    for number, member in enumerate(group.members.values()):
        group.set_protocols(member, protocols(f"own-{number}"))


STABLE: dict[str, tuple[Break, str]] = {
    "kept though it is gone": (set_state(GroupState.DEAD), "a Dead group is kept"),
    "a generation too large": (lambda g: setattr(g, "generation_id", MAX_GENERATION + 1), "Stable"),
    "a negative generation": (lambda g: setattr(g, "generation_id", -1), "Stable"),
    "generation 0 with members": (lambda g: setattr(g, "generation_id", 0), "Stable"),
    "Empty with members": (set_state(GroupState.EMPTY), "has members"),
    "led from outside": (lambda g: setattr(g, "leader_id", "stranger"), "leads and is no member"),
    "no protocol": (lambda g: setattr(g, "protocol_name", None), "Stable"),
    "no type": (lambda g: setattr(g, "protocol_type", ""), "members of no type"),
    "a protocol that not all support": (drop_support, "not supported by all"),
    "a name offered twice": (offer_twice, "offers a name twice"),
    "no protocol in common": (offer_nothing_in_common, "shared by all"),
    "a member under another id": (lambda g: setattr(first(g), "member_id", "other"), "Stable"),
    "an instance of nobody": (lambda g: g.static_members.update(i="x"), "instance ids"),
    "an id handed out to a member": (
        lambda g: g.pending_members.update({first(g).member_id: first(g).session}),
        "pending and a member",
    ),
    "a stranger's sync is awaited": (lambda g: g.pending_sync.add("x"), "syncs of non-members"),
    "parked joins are miscounted": (lambda g: setattr(g, "parked_joins", 1), "miscounted"),
    "a join parked in Stable": (lambda g: g.park_join(first(g), object()), "holds joins"),
    "a sync parked in Stable": (lambda g: setattr(first(g), "parked_sync", 1), "holds syncs"),
    "a join phase in Stable": (lambda g: setattr(g.join_phase, "at", 1), "join phase"),
    "a sync that is awaited for ever": (
        lambda g: g.pending_sync.add(first(g).member_id),
        "the wait for syncs",
    ),
    "a session that never ends": (
        lambda g: setattr(first(g).session, "at", None),
        "has no deadline",
    ),
    "a session out of the heap": (
        lambda g: setattr(first(g).session, "queued_at", None),
        "will be missed",
    ),
    "a session that is looked at too late": (
        lambda g: setattr(first(g).session, "queued_at", first(g).session.at + 1),
        "will be late",
    ),
    "never saved": (lambda g: setattr(g, "saved", None), "was never saved"),
    "saved under another name": (save(group_id="other"), "is saved as other"),
    "saved with another generation": (save(generation_id=7), "Stable"),
    "saved with another leader": (save(leader_id="other"), "Stable"),
    "saved with another protocol": (save(protocol_name="other"), "Stable"),
    "saved without its members": (save(members=()), "saved and live members differ"),
    "offsets that are not counted": (
        lambda g: g.offsets["orders"].popitem(),
        "shard 0: 2 offsets are counted, 1 are held",
    ),
    "a topic without partitions": (lambda g: g.offsets.update(x={}), "without partitions"),
}


@pytest.mark.parametrize(("damage", "said"), STABLE.values(), ids=STABLE)
def test_what_is_wrong_with_a_stable_group_is_found(damage: Break, said: str):
    driver = ShardDriver()
    leader, _ = a_stable_group(driver)
    leader.commit({"orders": {0: 5, 1: 5}})
    check(driver.shard)
    damage(driver.shard.groups["g"])
    with pytest.raises(AssertionError, match=said):
        check(driver.shard)


def test_last_generation_there_is_is_sound():
    driver = ShardDriver()
    a_stable_group(driver)
    group = driver.shard.groups["g"]
    group.generation_id = MAX_GENERATION
    save(generation_id=MAX_GENERATION)(group)
    check(driver.shard)


def drop_members(group: ClassicGroup) -> None:
    for member in list(group.members.values()):
        group.remove(member)


COMPLETING: dict[str, tuple[Break, str]] = {
    "nothing ends the sync phase": (
        lambda g: setattr(g.sync_phase, "at", None),
        "nothing ends the sync phase",
    ),
    "no members": (drop_members, "has no members"),
    "a sync that is held and awaited": (
        lambda g: setattr(first(g), "parked_sync", object()),
        "awaits a sync that it holds",
    ),
}


@pytest.mark.parametrize(("damage", "said"), COMPLETING.values(), ids=COMPLETING)
def test_what_is_wrong_with_a_completing_group_is_found(damage: Break, said: str):
    driver = ShardDriver()
    completing(driver, a_member(driver), a_member(driver))
    check(driver.shard)
    damage(driver.shard.groups["g"])
    with pytest.raises(AssertionError, match=said):
        check(driver.shard)


def test_group_that_is_complete_and_waits_is_found():
    driver = ShardDriver()
    leader, follower = a_stable_group(driver)
    leader.join(protocols=protocols("range", subscription=b"new"))
    group = driver.shard.groups["g"]
    assert group.state is GroupState.PREPARING_REBALANCE
    check(driver.shard)
    group.park_join(group.members[follower.member_id], object())
    with pytest.raises(AssertionError, match="is complete and waits"):
        check(driver.shard)


def test_handed_out_id_that_never_expires_is_found():
    driver = ShardDriver()
    driver.join("g")
    (pending,) = driver.shard.groups["g"].pending_members.values()
    check(driver.shard)
    pending.at = None
    with pytest.raises(AssertionError, match="a pending id has no deadline"):
        check(driver.shard)


def test_offset_above_the_end_of_its_partition_is_found():
    driver = ShardDriver()
    driver.commit("g", {"orders": {0: 5}})
    check(driver.shard)
    for ends in driver.shard.ends_by_topic.values():
        ends[0] = 4
    with pytest.raises(AssertionError, match="offset 5 is stored above the end 4"):
        check(driver.shard)


def test_group_under_another_name_is_found():
    shard: Shard = ShardDriver().shard
    shard.groups["g"] = ClassicGroup("other", shard.tally)
    with pytest.raises(AssertionError, match="other is kept as g"):
        check(shard)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda group: save(generation_id=9)(group), "Empty"),
        (lambda group: setattr(group.sync_phase, "at", 5), "a finished sync phase"),
    ],
    ids=["another generation", "a sync phase"],
)
def test_what_is_wrong_with_an_empty_group_is_found(damage: Break, said: str):
    driver = ShardDriver()
    driver.leave("g", *(member.member_id for member in a_stable_group(driver)))
    check(driver.shard)
    damage(driver.shard.groups["g"])
    with pytest.raises(AssertionError, match=said):
        check(driver.shard)
