"""What passes by itself is tried again; the rest is told in Kafka's words. No server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.pipeline.restore import cluster as module
from groupkeeper.pipeline.restore.cluster import (
    COMMIT_BYTES,
    Cluster,
    ClusterEndpoint,
    ClusterError,
    GroupBusy,
)
from groupkeeper.pipeline.restore.plan import Committed, Partition

errors = module.kafka.errors


class Admin:
    """kafka-python's client, with one error for each call that it is given."""

    def __init__(self, fails: list[type[Exception]]) -> None:
        self.fails = fails
        self.committed: list[int] = []
        self.closed = False

    def list_group_offsets(self, groups: list[str]) -> dict[str, Any]:
        if self.fails:
            raise self.fails.pop(0)
        return {group: {} for group in groups}

    def alter_group_offsets(self, group: str, offsets: dict[Any, Any]) -> dict[Any, Any]:
        self.committed.append(len(offsets))
        error = self.fails.pop(0) if self.fails else errors.NoError
        return dict.fromkeys(offsets, error)

    def close(self) -> None:
        self.closed = True


class Scripted(Cluster):
    """Connects to one client after the other."""

    def __init__(self, endpoint: ClusterEndpoint, *admins: Admin) -> None:
        self.admins = list(admins)
        super().__init__(endpoint, "test")

    def _connect(self) -> Any:
        return self.admins.pop(0)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterEndpoint]:
    monkeypatch.setattr(module, "RETRY_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield ClusterEndpoint(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=5)


def test_a_coordinator_that_loads_is_asked_again(endpoint: ClusterEndpoint) -> None:
    admin = Admin([errors.CoordinatorLoadInProgressError] * 3)
    assert Scripted(endpoint, admin).offsets(["g"]) == {"g": {}}


def test_a_coordinator_that_moved_is_looked_for_anew(endpoint: ClusterEndpoint) -> None:
    old, new = Admin([errors.NotCoordinatorError]), Admin([])
    assert Scripted(endpoint, old, new).offsets(["g"]) == {"g": {}}
    assert old.closed
    old, new = Admin([errors.NotCoordinatorError]), Admin([])
    Scripted(endpoint, old, new).commit("g", {Partition("t", 0): Committed(-1)})
    assert (old.committed, new.committed) == ([1], [1])


def test_a_refusal_because_of_members_is_told_apart(endpoint: ClusterEndpoint) -> None:
    with pytest.raises(GroupBusy):
        Scripted(endpoint, Admin([errors.UnknownMemberIdError])).commit(
            "g", {Partition("t", 0): Committed(-1)}
        )


def test_another_error_is_told_in_kafkas_words(endpoint: ClusterEndpoint) -> None:
    with pytest.raises(ClusterError, match="fetch offsets: GROUP_AUTHORIZATION_FAILED"):
        Scripted(endpoint, Admin([errors.GroupAuthorizationFailedError])).offsets(["g"])
    with pytest.raises(ClusterError, match="t-0: TOPIC_AUTHORIZATION_FAILED, and 1 more"):
        Scripted(endpoint, Admin([errors.TopicAuthorizationFailedError])).commit(
            "g", {Partition("t", number): Committed(-1) for number in range(2)}
        )


def test_a_large_commit_is_cut_to_what_one_batch_holds(endpoint: ClusterEndpoint) -> None:
    admin = Admin([])
    offsets = {Partition("t", number): Committed(1, -1, "m" * 4000) for number in range(250)}
    Scripted(endpoint, admin).commit("g", offsets)
    assert sum(admin.committed) == 250
    assert max(admin.committed) * 4000 < COMMIT_BYTES
    assert len(admin.committed) == 3


def test_nobody_there_is_told_at_once() -> None:
    with pytest.raises(ClusterError, match="cannot connect"):
        ClusterEndpoint("127.0.0.1:1").open("test")
    with pytest.raises(ClusterError, match="'nonsense' is not HOST:PORT"):
        ClusterEndpoint("nonsense").open("test")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"foo": "bar"}, "unknown setting foo; known are security.protocol, "),
        ({"security.protocol": "nonsense"}, "security.protocol=NONSENSE is not one of PLAINTEXT, "),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism= is not one of PLAIN, "),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"},
            "sasl.mechanism=GSSAPI is not one of PLAIN, ",
        ),
        ({"ssl.ca.location": "/no/ca.pem"}, "ssl.ca.location=/no/ca.pem: No such file"),
        ({"ssl.key.location": "/no/key.pem"}, "ssl.key.location=/no/key.pem: No such file"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_is_asked(
    endpoint: ClusterEndpoint, settings: dict[str, str], said: str
) -> None:
    with pytest.raises(ClusterError) as told:
        Scripted(endpoint._replace(properties=settings), Admin([]))
    assert said in str(told.value)


def test_right_settings_pass(endpoint: ClusterEndpoint, tmp_path: Path) -> None:
    (tmp_path / "key.pem").touch()
    settings = {"ssl.key.location": str(tmp_path / "key.pem"), "sasl.username": "a"}
    assert Scripted(endpoint._replace(properties=settings), Admin([])).address == endpoint.address


def test_an_error_that_kafka_has_no_name_for_is_told_by_its_class(
    endpoint: ClusterEndpoint,
) -> None:
    with pytest.raises(ClusterError, match=r"fetch offsets: KafkaTimeoutError$"):
        Scripted(endpoint, Admin([errors.KafkaTimeoutError])).offsets(["g"])


@pytest.mark.parametrize("port", ["99999", "0", "-1", "x"])
def test_a_port_that_is_none_is_told(port: str) -> None:
    with pytest.raises(ClusterError, match=f"'localhost:{port}' is not HOST:PORT"):
        ClusterEndpoint(f"localhost:{port}", {}, 1.0).open("test")


def test_a_server_that_does_not_answer_is_not_said_to_be_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ClusterError, match="but a server listens"):
            ClusterEndpoint(address, {}, 0.1).open("test")
