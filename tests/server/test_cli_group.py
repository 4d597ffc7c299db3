"""``groupkeeper group`` and ``groupkeeper health`` against a server, as a person uses them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from tests.helpers.daemon.daemon import Daemon, free_port
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.wire.raw_client import RawClient

NO_TOPICS = b"\0\0\0\0\0\0\xff\xff\xff\xff"

pytestmark = pytest.mark.groupkeeper(topics={"orders": 4, "clicks": 1})


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="groupkeeper")


def ask(server, *arguments: str):
    result = run("group", *arguments, "--server", server.bootstrap)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def a_member(
    client: RawClient,
    group: str,
    partitions: dict[str, list[int]],
    metadata: bytes = NO_TOPICS,
    **identity,
) -> str:
    """Join as the only member, and give itself these partitions."""
    member_id = ""
    for _ in range(2):
        joined = client.call(
            "join_group",
            5,
            group_id=group,
            session_timeout=60_000,
            rebalance_timeout=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata}],
            **identity,
        )
        member_id = joined["member_id"]
        if joined["error_code"] == 0:
            break
    assignment = encode_assignment(ConsumerAssignment(0, partitions))
    client.call(
        "sync_group",
        3,
        group_id=group,
        generation_id=joined["generation_id"],
        member_id=member_id,
        assignments=[{"member_id": member_id, "assignment": assignment}],
        **identity,
    )
    return member_id


def a_parked_member(client: RawClient, group: str) -> None:
    """Join a group whose members have to come back first; the answer is not waited for."""
    joining = {
        "group_id": group,
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": NO_TOPICS}],
    }
    member_id = client.call("join_group", 5, member_id="", **joining)["member_id"]
    client.send("join_group", 5, member_id=member_id, **joining)
    with RawClient(client.socket.getpeername()[1]) as other:
        for _ in range(500):
            (told,) = other.call("describe_groups", 5, groups=[group])["groups"]
            if told["group_state"] == "PreparingRebalance":
                return
            time.sleep(0.01)
    raise AssertionError("no rebalance began")


def test_without_groups_the_list_is_empty_and_that_is_no_failure(groupkeeper):
    assert (ask(groupkeeper, "list").exit_code, ask(groupkeeper, "list").stdout) == (0, "")
    assert json.loads(ask(groupkeeper, "list", "-o", "json").stdout) == []


def test_the_list_has_a_line_a_group_sorted_by_name(groupkeeper):
    groupkeeper.commit("simple", {("orders", 0): 1})
    with RawClient(groupkeeper.port) as client:
        a_member(client, "billing", {"orders": [0]})
        lines = ask(groupkeeper, "list").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["GROUP", "TYPE", "PROTOCOL-TYPE", "STATE"],
        ["billing", "classic", "consumer", "Stable"],
        ["simple", "classic", "-", "Empty"],
    ]


TRAP = "a\nb\x1b[31mRED"


def test_a_group_whose_id_would_act_on_the_terminal_is_shown_on_a_line_of_its_own(groupkeeper):
    groupkeeper.commit(TRAP, {("orders", 0): 1})
    groupkeeper.commit("billing", {("orders", 0): 1})
    with RawClient(groupkeeper.port, client_id="c\x1b]0;me\x07") as client:
        a_member(client, TRAP, {"orders": [0]}, group_instance_id="i\r1")
        listed, shown = ask(groupkeeper, "list").stdout, ask(groupkeeper, "describe", TRAP).stdout
        exact = json.loads(ask(groupkeeper, "list", "-o", "json").stdout)
    assert [line.split()[0] for line in listed.splitlines()] == [
        "GROUP",
        r"a\nb\x1b[31mRED",
        "billing",
    ]
    columns = [
        line.index(word)
        for line, word in zip(listed.splitlines(), ["TYPE", *["classic"] * 2], strict=True)
    ]
    assert len(set(columns)) == 1
    assert shown.splitlines()[0] == r"GROUP        a\nb\x1b[31mRED"
    assert r"c\x1b]0;me\x07" in shown
    assert r"i\r1" in shown
    assert not {"\x1b", "\r", "\x07"} & set(listed + shown)
    assert TRAP in [group["group"] for group in exact]


def test_what_the_terminal_has_no_letter_for_is_escaped(groupkeeper):
    groupkeeper.commit("grün", {("orders", 0): 1})
    program = [sys.executable, "-m", "groupkeeper", "group"]
    for command in (["list"], ["describe", "grün"]):
        done = subprocess.run(
            [*program, *command, "--server", groupkeeper.bootstrap],
            cwd=ROOT,
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert r"gr\xfcn" in done.stdout


def test_a_group_that_no_text_can_name_is_a_usage_error():
    result = run("group", "describe", "\udcff", "--server", "127.0.0.1:9")
    assert result.exit_code == 2
    assert r"'\udcff' is not UTF-8" in result.stderr


def test_filters_leave_what_matches_in_any_case_and_exit_4_when_nothing_does(groupkeeper):
    groupkeeper.commit("simple", {("orders", 0): 1})
    with RawClient(groupkeeper.port) as client:
        a_member(client, "billing", {"orders": [0]})

        def names(*arguments: str) -> list[str]:
            answer = ask(groupkeeper, "list", "-o", "json", *arguments)
            return [group["group"] for group in json.loads(answer.stdout)]

        assert names("-s", "stable") == ["billing"]
        assert names("-s", "Stable,EMPTY") == names("-s", "stable", "-s", "empty")
        assert names("-t", "classic") == ["billing", "simple"]
        assert names("-t", "consumer") == []
    result = ask(groupkeeper, "list", "-t", "consumer")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == "groupkeeper: no group matches\n"


def test_a_state_that_does_not_exist_is_a_usage_error_that_names_those_that_do(groupkeeper):
    result = ask(groupkeeper, "list", "-s", "sleeping")
    assert result.exit_code == 2
    assert "--state 'sleeping': no such state; known are Empty, PreparingRebalance" in result.stderr
    result = ask(groupkeeper, "list", "-s", "")
    assert "--state '': no such state" in result.stderr


def test_a_standard_output_that_is_full_is_told_in_one_line(groupkeeper):
    groupkeeper.commit("billing", {("orders", 0): 7})
    command = [
        sys.executable,
        "-m",
        "groupkeeper",
        "group",
        "list",
        "--server",
        groupkeeper.bootstrap,
    ]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (
        1,
        "groupkeeper: standard output: No space left on device\n",
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_with_closed_standard_streams_succeeds(groupkeeper, closed):
    """A health check may have none. It ended with 1 and a traceback, although all was well."""
    groupkeeper.commit("billing", {("orders", 0): 7})
    program = f'exec "{sys.executable}" -m groupkeeper group list --server "$0" {closed}'
    command = ["sh", "-c", program, groupkeeper.bootstrap]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("port", ["0", "65536", "", "x"])
def test_a_port_that_nobody_can_be_asked_at_is_a_usage_error(port):
    result = run("group", "list", "--server", f"127.0.0.1:{port}")
    assert result.exit_code == 2


def test_describe_shows_state_members_and_offsets_with_their_lag(groupkeeper):
    groupkeeper.commit("ahead", {("orders", 1): 100})
    groupkeeper.commit("billing", {("orders", 1): 88, ("clicks", 0): 5})
    with RawClient(groupkeeper.port, client_id="b1") as client:
        member_id = a_member(client, "billing", {"orders": [0, 1, 3]})
        shown = ask(groupkeeper, "describe", "billing")
    assert shown.exit_code == 0
    head, members, offsets = shown.stdout.split("\n\n")
    assert [line.split(maxsplit=1) for line in head.splitlines()] == [
        ["GROUP", "billing"],
        ["TYPE", "classic"],
        ["STATE", "Stable"],
        ["PROTOCOL", "consumer range"],
        ["COORDINATOR", f"1 at {groupkeeper.bootstrap}"],
        ["MEMBERS", "1"],
        ["TOTAL-LAG", "12"],
        ["TOPICS", "-"],
    ]
    assert [line.split() for line in members.splitlines()] == [
        ["CLIENT-ID", "HOST", "ASSIGNED", "INSTANCE-ID", "MEMBER-ID"],
        ["b1", "/127.0.0.1", "orders:0-1,3", "-", member_id],
    ]
    owner = ["b1", "/127.0.0.1", member_id]
    assert [line.split() for line in offsets.splitlines()][1:] == [
        ["clicks", "0", "5", "5", "0", "-", "-", "-"],
        ["orders", "0", "-", "0", "-", *owner],
        ["orders", "1", "88", "100", "12", *owner],
        ["orders", "3", "-", "0", "-", *owner],
    ]


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("oders", "no such topic here: oders, nearest: orders"),
        ("shipments", "no such topic here: shipments"),
    ],
)
def test_describe_names_a_topic_that_is_not_there_and_the_nearest(groupkeeper, topic, said):
    metadata = encode_subscription(Subscription(0, [topic, "clicks"]))
    with RawClient(groupkeeper.port) as client:
        a_member(client, "billing", {"clicks": [0]}, metadata=metadata)
        shown = ask(groupkeeper, "describe", "billing").stdout.splitlines()
        exact = json.loads(ask(groupkeeper, "describe", "billing", "-o", "json").stdout)
    assert f"TOPICS       {' '.join(sorted([topic, 'clicks']))}" in shown
    assert f"UNKNOWN      {said}" in shown
    assert [unknown["topic"] for unknown in exact["unknown_topics"]] == [topic]
    assert exact["waiting"] is None


def test_describe_says_who_is_awaited_since_when_and_until_when(groupkeeper):
    with RawClient(groupkeeper.port, client_id="slow") as slow:
        member_id = a_member(slow, "billing", {"orders": [0]})
        before_ms = time.time() * 1000
        with RawClient(groupkeeper.port, client_id="new") as new:
            a_parked_member(new, "billing")
            shown = ask(groupkeeper, "describe", "billing").stdout
            exact = json.loads(ask(groupkeeper, "describe", "billing", "-o", "json").stdout)
    waiting = exact["waiting"]
    assert exact["state"] == "PreparingRebalance"
    assert waiting["awaited"] == [
        {"member_id": member_id, "client_id": "slow", "client_host": "/127.0.0.1"}
    ]
    assert before_ms - 1000 <= waiting["since_ms"] <= time.time() * 1000
    assert 50_000 <= waiting["until_ms"] - waiting["since_ms"] <= 60_100
    (line,) = [line for line in shown.splitlines() if line.startswith("AWAITED")]
    assert line.startswith(f"AWAITED      {member_id} (slow at /127.0.0.1), since 20")


def test_other_clients_are_told_what_kafka_tells(groupkeeper):
    with RawClient(groupkeeper.port) as client:
        a_member(client, "billing", {"orders": [0]})
        (told,) = client.call("describe_groups", 6, groups=["billing"])["groups"]
    assert told["error_message"] is None


def test_a_lag_that_nobody_knows_is_no_lag_of_zero(groupkeeper):
    with RawClient(groupkeeper.port) as client:
        a_member(client, "billing", {"orders": [0]})
        shown = ask(groupkeeper, "describe", "billing").stdout
        exact = json.loads(ask(groupkeeper, "describe", "billing", "-o", "json").stdout)
    assert "TOTAL-LAG    -" in shown.splitlines()
    assert exact["total_lag"] is None


def test_describe_as_json_has_the_same_facts(groupkeeper):
    groupkeeper.commit("billing", {("orders", 1): 88})
    with RawClient(groupkeeper.port, client_id="b1") as client:
        member_id = a_member(client, "billing", {"orders": [1]}, group_instance_id="i1")
        shown = json.loads(ask(groupkeeper, "describe", "billing", "-o", "json").stdout)
    assert shown["coordinator"] == {"node_id": 1, "host": "127.0.0.1", "port": groupkeeper.port}
    assert (shown["state"], shown["type"], shown["total_lag"]) == ("Stable", "classic", 0)
    member = {"member_id": member_id, "client_id": "b1", "host": "/127.0.0.1"}
    assert shown["members"] == [member | {"instance_id": "i1", "partitions": {"orders": [1]}}]
    offset = {"topic": "orders", "partition": 1, "committed": 88, "end": 88, "lag": 0}
    assert shown["offsets"] == [offset | member]


def test_a_group_that_does_not_exist_exits_4(groupkeeper):
    result = ask(groupkeeper, "describe", "nobody")
    assert (result.exit_code, result.stdout) == (4, "")
    assert f"there is no group 'nobody' on {groupkeeper.bootstrap}" in result.stderr


def test_a_server_that_is_not_there_is_named_in_one_line():
    address = f"127.0.0.1:{free_port()}"
    result = run("group", "list", "--server", address)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"groupkeeper: {address}: cannot connect (Connection refused)")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "closed the connection; does a plain-text Kafka port listen there?"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server there does not speak Kafka"),
        (b"\0\0\0\x06\0\0\0\x01\0\0", "the answer cannot be read"),
        (b"\0\0\0\x06\0\0\0\x63\0\0", "the answer is to another request"),
    ],
)
def test_what_answers_but_is_no_broker_is_told_from_one(said, told):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1_000)
                peer.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        result = run("group", "list", "--server", f"127.0.0.1:{port}")
        thread.join()
    assert result.exit_code == 1
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_server_that_says_nothing_is_not_waited_for_for_ever():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = run("group", "list", "--server", f"127.0.0.1:{port}", "--timeout", "0.1")
    assert result.exit_code == 1
    assert "no answer within 0.1 s" in result.stderr


def test_an_address_without_a_port_is_a_usage_error():
    result = run("group", "list", "--server", "localhost")
    assert result.exit_code == 2
    assert "'localhost' is not HOST:PORT" in result.stderr


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [("200 OK", "ready\n", 0), ("503 Service Unavailable", "not ready: loading\n", 1)],
)
def test_health_says_what_readyz_says(monkeypatch, status, body, code):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked: list[bytes] = []

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                asked.append(peer.recv(1_000))
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
                peer.sendall((head + body).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        # what a daemon in a container listens on; a client cannot connect to that address
        monkeypatch.setenv("GROUPKEEPER_HTTP__LISTEN", f"0.0.0.0:{listener.getsockname()[1]}")
        result = run("health")
        thread.join()
    assert asked[0].startswith(b"GET /readyz HTTP/1.1\r\n")
    assert result.exit_code == code
    assert body.strip() in (result.stdout if code == 0 else result.stderr)


def test_health_of_a_daemon_that_is_not_there_exits_1(monkeypatch):
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("GROUPKEEPER_HTTP__LISTEN", address)
    result = run("health")
    assert result.exit_code == 1
    assert f"http://{address}/readyz: Connection refused" in result.stderr


@pytest.mark.slow
def test_the_daemon_itself_is_healthy_and_has_its_groups_listed(tmp_path):
    daemon = Daemon(tmp_path / "daemon", topics={"orders": 1})
    try:
        daemon.start()
        health = run("health", "--config", str(daemon.config_file))
        assert (health.exit_code, health.stdout) == (0, "ready\n")
        listed = run("group", "list", "--server", daemon.bootstrap)
        assert (listed.exit_code, listed.stderr) == (0, "no groups\n")
    finally:
        daemon.stop()
