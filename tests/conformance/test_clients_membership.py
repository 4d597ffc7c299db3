"""Real clients join, share, leave, die and come back, against the real process."""

from __future__ import annotations

import pytest

from tests.helpers.clients.members import (
    ALL_CLIENTS,
    COOPERATIVE_CLIENTS,
    Hosts,
    Member,
    wait_shared,
    wait_until,
)
from tests.helpers.core.group_view import describe, view
from tests.helpers.wire.raw_client import RawClient

TOPIC, PARTITIONS = "orders", 12

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_a_member_alone_gets_every_partition(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    member = shared_hosts.shared(client).join(f"{group}-a", group, [TOPIC])
    wait_shared([member], TOPIC, PARTITIONS)
    seen = view(raw, group)
    assert (seen.state, seen.protocol_type, seen.protocol) == ("Stable", "consumer", "range")
    identity = member.identity()
    assert set(seen.members) == {identity["member_id"]}
    assert identity.get("generation", seen.generation) == seen.generation
    member.leave()
    assert describe(raw, group)["group_state"] == "Empty"


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_three_members_share_and_a_leave_hands_over(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    host = shared_hosts.shared(client)
    first = host.join(f"{group}-a", group, [TOPIC])
    wait_shared([first], TOPIC, PARTITIONS)
    others = [host.join(f"{group}-{n}", group, [TOPIC]) for n in "bc"]
    wait_shared([first, *others], TOPIC, PARTITIONS)
    assert [len(m.held) for m in (first, *others)] == [4, 4, 4]
    assert len(view(raw, group).members) == 3
    first.leave()
    wait_shared(others, TOPIC, PARTITIONS)
    assert len(view(raw, group).members) == 2
    for member in others:
        member.leave()


def test_members_of_three_client_libraries_share_one_group(
    shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    members = [shared_hosts.shared(c).join(f"{group}-{c}", group, [TOPIC]) for c in ALL_CLIENTS]
    wait_shared(members, TOPIC, PARTITIONS)
    assert view(raw, group).protocol == "range"
    for member in members:
        member.leave()


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_a_killed_members_partitions_go_to_the_others(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    host = shared_hosts.shared(client)
    doomed = shared_hosts.fresh(client)
    survivors = [host.join(f"{group}-{n}", group, [TOPIC], session_ms=6000) for n in "ab"]
    victim = doomed.join(f"{group}-victim", group, [TOPIC], session_ms=6000)
    wait_shared([*survivors, victim], TOPIC, PARTITIONS)
    doomed.kill9()
    wait_shared(survivors, TOPIC, PARTITIONS)
    assert len(view(raw, group).members) == 2
    for member in survivors:
        member.leave()


@pytest.mark.parametrize("client", COOPERATIVE_CLIENTS)
def test_cooperative_members_keep_what_they_need_not_give_up(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    host = shared_hosts.shared(client)
    options = {"assignor": "cooperative-sticky"}
    first = host.join(f"{group}-a", group, [TOPIC], **options)
    wait_shared([first], TOPIC, PARTITIONS)
    before = first.held
    others = [host.join(f"{group}-{n}", group, [TOPIC], **options) for n in "bc"]
    members = [first, *others]
    wait_shared(members, TOPIC, PARTITIONS)
    wait_until(
        lambda: sorted(len(m.held) for m in members) == [4, 4, 4], [host], "a balanced assignment"
    )
    assert first.held < before
    # Cooperative: the kept partitions were never revoked.
    revoked = {tuple(p) for event in first.events("revoked") for p in event["revoked"]}
    assert not revoked & first.held
    assert view(raw, group).protocol == "cooperative-sticky"
    first.leave()
    wait_shared(others, TOPIC, PARTITIONS)
    for member in others:
        member.leave()


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_a_static_member_comes_back_without_a_rebalance(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    host = shared_hosts.shared(client)
    doomed = shared_hosts.fresh(client)
    names = ["a", "b"]
    # Long sessions: the killed member must not expire while its process starts again.
    options = {"session_ms": 30_000}
    stay: list[Member] = []
    for (
        n
    ) in names:  # one after the other: joins of kafka-python sometimes hang if static members race
        stay.append(host.join(f"{group}-{n}", group, [TOPIC], instance=f"{group}-{n}", **options))
        wait_shared(stay, TOPIC, PARTITIONS)
    restarted = f"{group}-c"
    gone = doomed.join(restarted, group, [TOPIC], instance=restarted, **options)
    wait_shared([*stay, gone], TOPIC, PARTITIONS)
    before = view(raw, group)
    seen, held = [m.rebalances for m in stay], gone.held
    doomed.kill9()
    back = shared_hosts.fresh(client).join(restarted, group, [TOPIC], instance=restarted, **options)
    wait_until(lambda: back.held == held, [back.host], "the old assignment for the new process")
    after = view(raw, group, generation_hint=before.generation or 1)
    assert after.state == "Stable"
    assert after.generation == before.generation
    assert [m.rebalances for m in stay] == seen
    old_id = {member_id for member_id, m in before.members.items() if m[0] == restarted}
    assert not old_id & set(after.members), "the new process got a new member id"
    assert _by_instance(after.members) == _by_instance(before.members)
    for member in (back, *stay):
        member.leave()


def _by_instance(
    members: dict[str, tuple[str | None, str, bytes, bytes]],
) -> dict[str | None, bytes]:
    return {instance: assignment for instance, _, _, assignment in members.values()}
