"""``commit.monotonic``: what the Python clients make of a rewind that the coordinator refuses.

Java and franz-go show the same in their own languages (``java-consumer/monotonic-commit``,
``franz-go/monotonic-commit``).
"""

from __future__ import annotations

import os

import pytest

from tests.helpers.clients.members import ALL_CLIENTS, Hosts, wait_shared
from tests.helpers.core.group_view import commit, view
from tests.helpers.wire.raw_client import RawClient

TOPIC, PARTITIONS = "orders", 12
GROUP_RESOURCE = 32
SET = 0

pytestmark = pytest.mark.clients


def _set(raw: RawClient, group: str, key: str, value: str) -> None:
    config = {"name": key, "config_operation": SET, "value": value}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [config]}
    reply = raw.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    assert [r["error_code"] for r in reply["responses"]] == [0], reply


@pytest.mark.parametrize("client", ALL_CLIENTS)
def test_a_rewind_is_a_failed_commit_and_the_member_stays(
    client: str, shared_hosts: Hosts, raw: RawClient, group: str
) -> None:
    if os.environ.get("CONFORMANCE_KAFKA"):
        pytest.skip("Apache Kafka has no such config")
    _set(raw, group, "commit.monotonic", "true")
    member = shared_hosts.shared(client).join(f"{group}-a", group, [TOPIC])
    wait_shared([member], TOPIC, PARTITIONS)
    before = view(raw, group)
    assert member.commit({f"{TOPIC}:0": 10, f"{TOPIC}:1": 10})["ok"]

    refused = member.commit({f"{TOPIC}:0": 9, f"{TOPIC}:1": 11})

    assert not refused["ok"]
    assert "INVALID_COMMIT_OFFSET_SIZE" in refused["message"].upper().replace(" ", "_") or (
        "InvalidCommitOffsetSize" in refused["error"]
    ), refused
    held = member.committed()
    assert (held[f"{TOPIC}:0"], held[f"{TOPIC}:1"]) == (10, 11), "partition by partition"
    assert member.commit({f"{TOPIC}:0": 12})["ok"], "the same member goes on"
    assert view(raw, group) == before
    assert member.rebalances == 1
    member.leave()
    assert commit(raw, group, TOPIC, {0: 3}) == {0: 0}, "an administrator may go back"
