"""The authentication of a client by the upstream, message by message."""

from __future__ import annotations

import base64
import json

import pytest

from groupkeeper.coordinator.gateway.apis import treatments
from groupkeeper.coordinator.gateway.client_login import (
    MAX_NAME_CHARS,
    ClientLogin,
    Permit,
    principal_of,
)
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.relays import KAFKA_VERSIONS
from tests.helpers.wire.sasl import (
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    authenticate,
    authenticate_reply,
    handshake,
    handshake_reply,
    proof_reply,
)

API_VERSIONS, HEARTBEAT = 18, 12
ILLEGAL_SASL_STATE, AUTHENTICATION_FAILED = 34, 58


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def a_login(clock: Clock | None = None, authenticate_versions: int = 2) -> ClientLogin:
    versions = {**KAFKA_VERSIONS, AUTHENTICATE: (0, authenticate_versions)}
    return ClientLogin(treatments(versions, follows_logins=True), clock or Clock())


def choose(login: ClientLogin, mechanism: str = "PLAIN", error: int = 0) -> None:
    login.ask(HANDSHAKE, 1, handshake(1, mechanism))
    login.answered(1, handshake_reply(1, error))


def tell(
    login: ClientLogin, token: bytes = b"\0alice\0secret", error: int = 0, ms: int = 0
) -> None:
    login.ask(AUTHENTICATE, 1, authenticate(1, token))
    login.answered(1, authenticate_reply(1, error, ms))


def prove(login: ClientLogin, *broker_ids: int) -> None:
    assert login.permit(HEARTBEAT) is Permit.AFTER_PROOF
    login.proof(7)
    assert login.permit(HEARTBEAT) is Permit.LATER
    assert login.proved(proof_reply(7, *broker_ids)) == b"", "the client has not asked"


def refusal(login: ClientLogin) -> str:
    with pytest.raises(ProtocolError) as caught:
        login.permit(HEARTBEAT)
    return caught.value.reason


def test_nothing_but_the_authentication_is_served_before_its_end():
    login = a_login()
    assert refusal(login) == "not_authenticated"
    assert login.permit(API_VERSIONS) is login.permit(HANDSHAKE) is Permit.GRANTED
    choose(login)
    assert refusal(login) == "not_authenticated"
    login.ask(AUTHENTICATE, 1, authenticate(1))
    assert login.permit(HEARTBEAT) is login.permit(AUTHENTICATE) is Permit.LATER
    login.answered(1, authenticate_reply(1))
    prove(login, 1)
    assert login.permit(HEARTBEAT) is Permit.GRANTED
    assert (login.principal, login.failure) == ("User:alice", "")


def test_a_client_that_stops_in_the_middle_is_nobody():
    """The broker has accepted the first token of SCRAM, for which nobody needs a password."""
    login = a_login()
    choose(login, "SCRAM-SHA-512")
    tell(login, b"n,,n=alice,r=nonce")
    prove(login)
    assert login.principal == "User:ANONYMOUS"
    assert "before the end" in login.failure
    assert refusal(login) == "not_authenticated"


def test_the_name_is_that_of_the_first_token():
    login = a_login()
    choose(login, "SCRAM-SHA-512")
    tell(login, b"n,,n=alice,r=nonce")
    tell(login, b"c=biws,n=bob,r=nonce,p=proof")
    prove(login, 1)
    assert login.principal == "User:alice"


def test_a_refused_client_stays_unknown():
    login = a_login()
    choose(login)
    login.ask(AUTHENTICATE, 1, authenticate(1))
    login.answered(1, authenticate_reply(1, AUTHENTICATION_FAILED, message="no such user"))
    assert login.failure == "no such user (error 58)"
    assert refusal(login) == "not_authenticated"
    login = a_login()
    choose(login, "GSSAPI", error=33)
    assert login.failure == "the mechanism GSSAPI (error 33)"


def test_a_session_ends_and_can_be_renewed():
    clock = Clock()
    login = a_login(clock)
    choose(login)
    tell(login, ms=5_000)
    prove(login, 1)
    clock.now_s += 4
    assert login.permit(HEARTBEAT) is Permit.GRANTED
    choose(login)
    assert refusal(login) == "not_authenticated", "as at the broker"
    tell(login, ms=5_000)
    prove(login, 1)
    clock.now_s += 4
    assert login.permit(HEARTBEAT) is Permit.GRANTED
    clock.now_s += 1
    assert refusal(login) == "session_expired"
    assert login.permit(HANDSHAKE) is Permit.GRANTED


def test_a_client_cannot_become_another_one():
    login = a_login()
    choose(login)
    tell(login)
    prove(login, 1)
    choose(login)
    tell(login, b"\0bob\0secret")
    prove(login, 1)
    assert login.principal == "User:alice"
    assert login.failure == "User:alice cannot become User:bob"
    assert refusal(login) == "not_authenticated"


def test_a_broker_that_has_no_second_authentication_leaves_the_first_one():
    """Also Kafka, within a second of the last one (KafkaChannel)."""
    login = a_login()
    choose(login)
    tell(login)
    prove(login, 1)
    choose(login, error=ILLEGAL_SASL_STATE)
    tell(login, b"\0bob\0secret", error=ILLEGAL_SASL_STATE)
    assert login.permit(HEARTBEAT) is Permit.GRANTED
    assert (login.principal, login.failure) == ("User:alice", "")


def test_an_old_client_is_also_told_when_its_session_ends():
    clock = Clock()
    login = a_login(clock)
    choose(login)
    assert login.ask(AUTHENTICATE, 0, authenticate(1, version=0)) == authenticate(1)
    short = login.answered(0, authenticate_reply(1, lifetime_ms=5_000))
    whole = authenticate_reply(1)
    assert short == (len(whole) - 4 - 8).to_bytes(4, "big") + whole[4:-8]
    prove(login, 1)
    clock.now_s += 5
    assert refusal(login) == "session_expired"


def test_an_old_broker_is_asked_in_its_version():
    login = a_login(authenticate_versions=0)
    choose(login)
    frame = authenticate(1, version=0)
    assert login.ask(AUTHENTICATE, 0, frame) == frame
    short = authenticate_reply(1)
    assert login.answered(0, short[:-8]) == short[:-8]
    prove(login, 1)


def test_the_proof_asks_for_no_topic():
    login = a_login()
    choose(login)
    tell(login)
    frame = login.proof(7)
    assert int.from_bytes(frame[4:6], "big") == METADATA
    assert b"groupkeeper" in frame
    assert login.is_proving


@pytest.mark.parametrize("damage", [b"", b"\0\0\0\x05", b"\0\0\0\x01\0\x3a\xff\xff\0\0"])
def test_damaged_answers_are_told(damage: bytes):
    login = a_login()
    choose(login)
    login.ask(AUTHENTICATE, 1, authenticate(1))
    with pytest.raises(ProtocolError):
        login.answered(1, len(damage).to_bytes(4, "big") + damage)


@pytest.mark.parametrize("cut", range(12, len(authenticate(1))))
def test_damaged_requests_are_told(cut: int):
    login = a_login()
    choose(login)
    with pytest.raises(ProtocolError):
        login.ask(AUTHENTICATE, 1, authenticate(1)[:cut])


def jwt(claims: object) -> bytes:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"n,,\x01auth=Bearer e30." + body + b".sig\x01\x01"


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        ("PLAIN", b"\0alice\0secret", "User:alice"),
        ("PLAIN", b"bob\0alice\0secret", "User:alice"),
        ("PLAIN", "\0zoë\0secret".encode(), "User:zoë"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=nonce", "User:alice"),
        ("SCRAM-SHA-512", b"n,a=bob,n=a=2Cb=3Dc,r=nonce", "User:a,b=c"),
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce,n=bob", "User:alice"),
        ("SCRAM-SHA-512", b"n,,r=nonce", "Unknown:SCRAM-SHA-512"),
        ("SCRAM-SHA-512", b"n,,n=ZmE,r=nonce,tokenauth=true", "DelegationToken:ZmE"),
        ("OAUTHBEARER", jwt({"sub": "alice"}), "User:alice"),
        ("OAUTHBEARER", jwt({"name": "alice"}), "Unknown:OAUTHBEARER"),
        ("OAUTHBEARER", jwt({"sub": ["alice"]}), "Unknown:OAUTHBEARER"),
        ("OAUTHBEARER", jwt(["sub"]), "Unknown:OAUTHBEARER"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer opaque\x01\x01", "Unknown:OAUTHBEARER"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a.!.b\x01\x01", "Unknown:OAUTHBEARER"),
        ("GSSAPI", b"\x60\x82", "Unknown:GSSAPI"),
        ("PLAIN", b"", "Unknown:PLAIN"),
        ("PLAIN", b"\xff\0\xff\0", "Unknown:PLAIN"),
        ("SCRAM-SHA-512", b"n,,", "Unknown:SCRAM-SHA-512"),
        ("SCRAM-SHA-512", b"n", "Unknown:SCRAM-SHA-512"),
        ("SCRAM-SHA-512", b"n,,x", "Unknown:SCRAM-SHA-512"),
        ("PLAIN", b"\0" + b"a" * 1_000 + b"\0", "User:" + "a" * (MAX_NAME_CHARS - 5)),
    ],
)
def test_the_name_of_a_client(mechanism: str, token: bytes, name: str):
    assert principal_of(mechanism, token) == name
