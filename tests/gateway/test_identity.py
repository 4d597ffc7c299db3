"""Clients that the upstream authenticates through us (``upstream.identity = "client"``)."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AclOperation

from groupkeeper import read_events
from tests.helpers.clients.guarded_kafka import PASSWORDS, GuardedKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

LIMIT_S = 60
SESSION_MS = 5_000
RECORDS = 20
ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 34, 58
SCRAM = "SCRAM-SHA-512"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """Alice may use ``orders``, bob may use ``parcels``, and we may use ``payroll``."""
    topics = {"orders": 2, "parcels": 2, "payroll": 1}
    kafka = GuardedKafka(tmp_path_factory.mktemp("guarded"), topics, SESSION_MS)
    try:
        kafka.start()
        kafka.allow("gate", "*", AclOperation.DESCRIBE)
        for user, topic in (("gate", "payroll"), ("alice", "orders"), ("bob", "parcels")):
            kafka.allow(user, topic, AclOperation.READ, AclOperation.WRITE)
        yield kafka
    finally:
        kafka.broker.stop()


def in_front_of(guarded: GuardedKafka, directory: Path, identity: str) -> Groupkeeper:
    (directory / "password").write_text(PASSWORDS["gate"] + "\n")
    settings = {
        "upstream.identity": identity,
        "upstream.sasl": SCRAM,
        "upstream.user": "gate",
        "upstream.password_file": str(directory / "password"),
    }
    return a_gateway(directory, guarded.bootstrap, settings)


@pytest.fixture(scope="module")
def gateway(
    guarded: GuardedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Groupkeeper]:
    daemon = in_front_of(guarded, tmp_path_factory.mktemp("gateway"), "client")
    try:
        yield daemon.start()
    finally:
        daemon.stop()


def login(gateway: Groupkeeper, user: str, mechanism: str, password: str = "") -> dict[str, Any]:
    return {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password or PASSWORDS[user],
    }


def listener(gateway: Groupkeeper) -> int:
    """The port of ours in front of the broker."""
    _until(lambda: bool(gateway.metric('groupkeeper_upstream_up{broker="1"}')))
    return int(str(gateway.settings["upstream.ports"]).split("-")[0])


def principals(gateway: Groupkeeper, group: str) -> dict[str, set[str]]:
    """Who caused each kind of event of a group, by the event log."""
    found: dict[str, set[str]] = {}
    for each in read_events(gateway.directory / "groupkeeper.db"):
        if each["group"] == group and each["principal"]:
            found.setdefault(each["kind"], set()).add(each["principal"])
    return found


def failure_of_produce(producer: Producer, topic: str) -> int | None:
    """Produce one record. Return the error of its delivery."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer.produce(topic, value="1", on_delivery=delivered)
    assert producer.flush(LIMIT_S) == 0
    (error,) = errors
    return None if error is None else error.code()


# --- Clients --------------------------------------------------------------------------------------


def test_librdkafka_has_its_own_rights_and_the_event_log_names_it(gateway: Groupkeeper) -> None:
    """Alice logs in with PLAIN to produce, and with SCRAM to consume."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    producer = Producer(login(gateway, "alice", "PLAIN"))
    for n in range(RECORDS):
        producer.produce("orders", value=str(n))
    assert producer.flush(LIMIT_S) == 0
    assert failure_of_produce(producer, "payroll") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(
        {
            **login(gateway, "alice", SCRAM),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    got, end = set(), time.monotonic() + LIMIT_S
    while len(got) < RECORDS and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            got.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert got == {str(n).encode() for n in range(RECORDS)}
    named = principals(gateway, group)
    assert named["commit"] == named["member_join"] == {"User:alice"}


async def test_aiokafka_has_its_own_rights_and_the_event_log_names_it(
    gateway: Groupkeeper,
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    as_bob: Any = {
        "bootstrap_servers": gateway.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": SCRAM,
        "sasl_plain_username": "bob",
        "sasl_plain_password": PASSWORDS["bob"],
    }
    async with aiokafka.AIOKafkaProducer(**as_bob) as producer:
        for n in range(RECORDS):
            await producer.send_and_wait("parcels", str(n).encode())
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("orders", b"not bob's")
    consumer = aiokafka.AIOKafkaConsumer(
        "parcels",
        **as_bob,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    got: set[bytes] = set()
    async with consumer:
        end = time.monotonic() + LIMIT_S
        while len(got) < RECORDS and time.monotonic() < end:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                got |= {record.value for record in records}
        await consumer.commit()
    assert got == {str(n).encode() for n in range(RECORDS)}
    named = principals(gateway, group)
    assert named["commit"] == named["member_join"] == {"User:bob"}


# --- Requests one by one, compared with those to the broker itself --------------------------------


def plain(user: str, password: str = "") -> bytes:
    return f"\0{user}\0{password or PASSWORDS[user]}".encode()


def log_in(raw: RawClient, user: str) -> int:
    """Return after how many milliseconds the session ends; 0 if it is too early to log in again."""
    error = raw.call("sasl_handshake", 1, mechanism="PLAIN")["error_code"]
    if error == ILLEGAL_SASL_STATE:
        return 0
    assert error == 0
    answer = raw.call("sasl_authenticate", 1, auth_bytes=plain(user))
    assert answer["error_code"] == 0, answer
    return int(answer["session_lifetime"])


def heartbeat(raw: RawClient) -> int:
    """Beat for a member that does not exist. Return the error."""
    values = {"group_id": "nobody", "generation_id": 1, "member_id": "x"}
    return int(raw.call("heartbeat", 0, **values)["error_code"])


def is_refused(raw: RawClient) -> bool:
    """True if a heartbeat is not served. If an exchange has begun, Kafka answers with an error
    before it ends the connection.
    """
    try:
        return heartbeat(raw) == ILLEGAL_SASL_STATE
    except OSError:
        return True


def test_requests_before_the_authentication_end_the_connection_as_at_the_broker(
    guarded: GuardedKafka, gateway: Groupkeeper
) -> None:
    for port in (guarded.sasl_port, gateway.port, listener(gateway)):
        with RawClient(port) as raw:
            assert raw.call("api_versions", 0)["error_code"] == 0
            assert is_refused(raw), "nothing was sent"
        with RawClient(port) as raw:
            raw.call("sasl_handshake", 1, mechanism=SCRAM)
            assert is_refused(raw), "a mechanism was named"
        with RawClient(port) as raw:
            raw.call("sasl_handshake", 1, mechanism=SCRAM)
            first = raw.call("sasl_authenticate", 1, auth_bytes=b"n,,n=alice,r=abcdefgh")
            assert first["error_code"] == 0
            assert is_refused(raw), "no password was needed so far"
        with RawClient(port) as raw:
            found = raw.call("sasl_handshake", 1, mechanism="GSSAPI")
            assert (found["error_code"], set(found["mechanisms"])) == (33, {"PLAIN", SCRAM})
            assert is_refused(raw), "the mechanism is not enabled"


def is_closed(raw: RawClient) -> bool:
    """True once the other side has closed the connection, whatever it has answered."""
    try:
        while raw.receive_frame():
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def test_garbage_in_the_middle_of_an_authentication_ends_that_connection_alone(
    guarded: GuardedKafka, gateway: Groupkeeper
) -> None:
    token = plain("alice")
    garbage = (
        struct.pack(">i", len(token)) + token,  # as after a SaslHandshake of version 0
        struct.pack(">i", 64) + bytes(range(64)),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1) + token,
        struct.pack(">ihhih", 12, 36, 2, 7, 2) + b"ap",  # a SaslAuthenticate without a token
    )
    for port in (guarded.sasl_port, gateway.port, listener(gateway)):
        with RawClient(port) as other:
            assert log_in(other, "bob")
            for each in garbage:
                with RawClient(port, timeout_s=LIMIT_S) as raw:
                    raw.call("sasl_handshake", 1, mechanism="PLAIN")
                    raw.socket.sendall(each)
                    assert is_closed(raw), each
            assert other.call("metadata", 4, topics=[])["brokers"]


def test_a_client_cannot_become_another_one(guarded: GuardedKafka, gateway: Groupkeeper) -> None:
    answers = []
    for port in (guarded.sasl_port, gateway.port, listener(gateway)):
        with RawClient(port) as raw:
            assert log_in(raw, "alice")
            raw.call("metadata", 4, topics=[])
            while raw.call("sasl_handshake", 1, mechanism="PLAIN")["error_code"]:
                time.sleep(0.05)  # the broker takes no second authentication within a second
            answers.append(raw.call("sasl_authenticate", 1, auth_bytes=plain("bob")))
            assert is_refused(raw)
    assert answers[0]["error_code"] == SASL_AUTHENTICATION_FAILED
    assert answers[0] == answers[1] == answers[2]


def test_a_wrong_password_gets_the_error_of_the_upstream(
    guarded: GuardedKafka, gateway: Groupkeeper
) -> None:
    answers = []
    for port in (guarded.sasl_port, gateway.port, listener(gateway)):
        with RawClient(port) as raw:
            raw.call("sasl_handshake", 1, mechanism="PLAIN")
            answers.append(raw.call("sasl_authenticate", 0, auth_bytes=plain("alice", "wrong")))
            assert is_refused(raw)
    assert answers[0]["error_code"] == SASL_AUTHENTICATION_FAILED
    assert answers[0] == answers[1] == answers[2]
    assert "authentication_failed" in gateway.log


def test_requests_behind_the_authentication_wait_for_it(gateway: Groupkeeper) -> None:
    for port in (gateway.port, listener(gateway)):
        with RawClient(port) as raw:
            begun = [
                ("sasl_handshake", 1, raw.send("sasl_handshake", 1, mechanism="PLAIN")),
                (
                    "sasl_authenticate",
                    0,
                    raw.send("sasl_authenticate", 0, auth_bytes=plain("alice")),
                ),
                ("list_groups", 0, raw.send("list_groups", 0)),
                ("metadata", 4, raw.send("metadata", 4, topics=None)),
                ("list_groups", 0, raw.send("list_groups", 0)),
            ]
            replies = [raw.receive(*each) for each in begun]
        assert [reply.get("error_code", 0) for reply in replies] == [0] * len(replies)
        seen = {topic["name"] for topic in replies[3]["topics"]}
        assert seen == {"orders"}, "alice sees no topic for which she has no right"


def test_a_session_ends_unless_the_client_authenticates_itself_again(gateway: Groupkeeper) -> None:
    ports = (gateway.port, listener(gateway))
    lasting, ending = [RawClient(each) for each in ports], [RawClient(each) for each in ports]
    for raw in ending:
        assert 0 < log_in(raw, "alice") <= SESSION_MS
    end_s = time.monotonic() + LIMIT_S
    while ending and time.monotonic() < end_s:
        for raw in lasting:
            log_in(raw, "alice")
            assert heartbeat(raw) > 0
        for raw in tuple(ending):
            if is_refused(raw):
                ending.remove(raw)
                raw.close()
        time.sleep(0.05)
    assert not ending
    for raw in lasting:
        assert raw.call("metadata", 4, topics=None)["topics"]
        raw.close()
    assert "session_expired" in gateway.log


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    assert true()
