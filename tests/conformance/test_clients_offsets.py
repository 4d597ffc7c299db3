"""Real clients commit, the process restarts, and they go on where they stopped."""

from __future__ import annotations

import pytest

from tests.helpers.clients.members import ALL_CLIENTS, Hosts, wait_shared
from tests.helpers.core.group_view import ILLEGAL_GENERATION, commit, committed, view
from tests.helpers.daemon.servers import Server
from tests.helpers.wire.raw_client import RawClient

TOPIC, PARTITIONS = "orders", 12

pytestmark = pytest.mark.conformance


def test_commits_survive_a_restart_and_members_go_on_without_a_rebalance(
    own_server: Server, own_hosts: Hosts
) -> None:
    members = {
        client: own_hosts.shared(client).join(
            f"m-{client}", f"g-{client}", [TOPIC], session_ms=30_000
        )
        for client in ALL_CLIENTS
    }
    wanted = {}
    for n, (client, member) in enumerate(members.items()):
        wait_shared([member], TOPIC, PARTITIONS)
        wanted[client] = {f"{TOPIC}:{p}": 100 * n + p for p in range(PARTITIONS)}
        assert member.commit(wanted[client])["ok"]
    with RawClient(own_server.port) as raw:
        before = {client: view(raw, f"g-{client}") for client in ALL_CLIENTS}

    assert own_server.terminate() == 0
    own_server.start()

    with RawClient(own_server.port) as raw:
        after = {
            client: view(raw, f"g-{client}", generation_hint=before[client].generation or 1)
            for client in ALL_CLIENTS
        }
    for client, member in members.items():
        assert after[client] == before[client]
        assert member.committed() == wanted[client]
        again = {key: offset + 1 for key, offset in wanted[client].items()}
        assert member.commit(again)["ok"], "the same member, in the same generation"
        assert member.rebalances == 1, member.host.complaint()
        member.leave()
        heir = own_hosts.shared(client).join(f"heir-{client}", f"g-{client}", [TOPIC])
        wait_shared([heir], TOPIC, PARTITIONS)
        assert heir.committed() == again
        heir.leave()


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_a_commit_of_a_stale_generation_is_refused(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    member = shared_hosts.shared(client).join(f"{group}-a", group, [TOPIC])
    wait_shared([member], TOPIC, PARTITIONS)
    assert member.commit({f"{TOPIC}:3": 33})["ok"]
    now = view(raw, group)
    member_id = member.identity()["member_id"]
    assert now.generation is not None
    codes = commit(raw, group, TOPIC, {3: 34}, generation=now.generation - 1, member_id=member_id)
    assert codes == {3: ILLEGAL_GENERATION}
    if client != "librdkafka":  # librdkafka does not allow a caller to set the generation
        refused = member.do("stale_commit", offsets={f"{TOPIC}:3": 35})
        assert not refused["ok"]
        assert refused["error"] in ("CommitFailedError", "IllegalGenerationError"), refused
    # It does not leave: aiokafka has forgotten its id, and would wait for its own old membership.
    assert committed(raw, group) == {(TOPIC, 3): 33}
