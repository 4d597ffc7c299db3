"""``groupkeeper group`` against brokers that are not like us: other versions, groups, answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from tests.helpers.wire.scripted_broker import ScriptedBroker

LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_GROUP_DESCRIBE = 15, 16, 69


class Cluster:
    """One scripted broker, whose answers a test changes."""

    def __init__(self) -> None:
        self.answers: dict[int, dict[str, Any] | list[dict[str, Any]]] = {}
        versions = {METADATA: 12, LIST_GROUPS: 5, DESCRIBE_GROUPS: 6, FIND_COORDINATOR: 4}
        versions |= {OFFSET_FETCH: 9, LIST_OFFSETS: 8, CONSUMER_GROUP_DESCRIBE: 1}
        self.broker = ScriptedBroker({k: (v, self._answer(k)) for k, v in versions.items()})
        here = {"node_id": 1, "host": "127.0.0.1", "port": self.broker.port}
        partition = {"partition_index": 0, "leader_id": 1, "error_code": ErrorCode.none}
        topic = {"name": "orders", "partitions": [partition], "error_code": ErrorCode.none}
        self.answers[METADATA] = {"brokers": [here], "topics": [topic]}
        self.answers[FIND_COORDINATOR] = {"coordinators": [found(ErrorCode.none) | here]}
        self.answers[DESCRIBE_GROUPS] = described(ErrorCode.group_id_not_found)
        self.answers[CONSUMER_GROUP_DESCRIBE] = described(ErrorCode.group_id_not_found)
        self.answers[LIST_GROUPS] = {"error_code": ErrorCode.none, "groups": []}
        self.answers[OFFSET_FETCH] = {"groups": [{"group_id": "g", "error_code": ErrorCode.none}]}

    def _answer(self, key: int):
        def answer() -> dict[str, Any]:
            now = self.answers[key]
            if isinstance(now, list):
                return now.pop(0) if len(now) > 1 else now[0]
            return now

        return answer

    def run(self, *arguments: str):
        server = ["--server", self.broker.bootstrap, "--timeout", "5"]
        return CliRunner().invoke(app, ["group", *arguments, *server], prog_name="groupkeeper")


def found(error: ErrorCode) -> dict[str, Any]:
    return {"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": error}


def described(error: ErrorCode, **values: Any) -> dict[str, Any]:
    return {"groups": [{"group_id": "g", "error_code": error, **values}]}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.broker.close()


def test_a_group_of_the_consumer_protocol_is_described_with_what_its_members_have_now(cluster):
    given = {"topic_id": uuid.uuid4(), "topic_name": "orders", "partitions": [0]}
    member = {
        "member_id": "m1",
        "client_id": "c1",
        "client_host": "/10.0.0.1",
        "assignment": {"topic_partitions": [given]},
        "target_assignment": {"topic_partitions": []},
    }
    cluster.answers[CONSUMER_GROUP_DESCRIBE] = described(
        ErrorCode.none, group_state="Reconciling", assignor_name="uniform", members=[member]
    )
    committed = {"partition_index": 0, "committed_offset": 7, "error_code": ErrorCode.none}
    topics = [{"name": "orders", "partitions": [committed]}]
    group = {"group_id": "g", "error_code": ErrorCode.none, "topics": topics}
    cluster.answers[OFFSET_FETCH] = {"groups": [group]}
    # less than what was committed: read before the records that were consumed meanwhile came
    end = {"partition_index": 0, "offset": 5, "error_code": ErrorCode.none}
    cluster.answers[LIST_OFFSETS] = {"topics": [{"name": "orders", "partitions": [end]}]}
    shown = json.loads(cluster.run("describe", "g", "-o", "json").stdout)
    assert (shown["type"], shown["state"], shown["protocol"]) == (
        "consumer",
        "Reconciling",
        "uniform",
    )
    assert shown["members"][0]["partitions"] == {"orders": [0]}
    (offset,) = shown["offsets"]
    assert (offset["committed"], offset["end"], offset["lag"]) == (7, 5, 0)
    assert offset["client_id"] == "c1"


def test_a_group_of_a_type_that_cannot_be_described_is_named_as_such(cluster):
    listed = {"group_id": "g", "protocol_type": "share", "group_type": "Share"}
    cluster.answers[LIST_GROUPS] = {"error_code": ErrorCode.none, "groups": [listed]}
    result = cluster.run("describe", "g")
    assert result.exit_code == 1
    assert "group 'g' is a share group" in result.stderr


def test_what_passes_by_itself_is_asked_again(cluster):
    ready = cluster.answers[FIND_COORDINATOR]
    waiting = {"coordinators": [found(ErrorCode.coordinator_not_available)]}
    cluster.answers[FIND_COORDINATOR] = [waiting, ready]
    loading = described(ErrorCode.coordinator_load_in_progress)
    cluster.answers[DESCRIBE_GROUPS] = [loading, described(ErrorCode.none, group_state="Empty")]
    assert cluster.run("describe", "g").exit_code == 0
    assert cluster.broker.asked.count(FIND_COORDINATOR) == 2
    assert cluster.broker.asked.count(DESCRIBE_GROUPS) == 2


def test_what_does_not_pass_is_told_at_once_by_kafkas_name(cluster):
    cluster.answers[LIST_GROUPS] = {"error_code": ErrorCode.cluster_authorization_failed}
    result = cluster.run("list")
    assert result.exit_code == 1
    assert "ListGroups: CLUSTER_AUTHORIZATION_FAILED" in result.stderr
    assert cluster.broker.asked.count(LIST_GROUPS) == 1


def test_a_broker_without_an_api_that_we_need_is_told(cluster):
    del cluster.broker.apis[DESCRIBE_GROUPS]
    result = cluster.run("describe", "g")
    assert result.exit_code == 1
    assert "has no known version of API 15" in result.stderr
