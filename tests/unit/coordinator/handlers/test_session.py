from __future__ import annotations

from groupkeeper.coordinator.handlers.session import MAX_KEPT_CHARS, Session
from tests.helpers.wire.handling import begin, make_services


def test_a_client_is_who_speaks_under_the_name_of_its_request() -> None:
    session = Session("PLAINTEXT", "10.0.0.1", "User:alice")
    client = session.named("app")
    assert client == ("app", "/10.0.0.1", "User:alice")
    assert session.client is client
    assert session.named(None).client_id == ""


def test_an_idle_connection_keeps_no_long_client_id() -> None:
    """Ten thousand connections would hold a third of a gigabyte that no budget counts."""
    session = Session("PLAINTEXT", "10.0.0.1", "User:alice")
    assert session.named("a" * 32_767) == ("a" * 32_767, "/10.0.0.1", "User:alice")
    assert session.client == ("a" * MAX_KEPT_CHARS, "/10.0.0.1", "User:alice")


def test_an_address_is_shown_as_java_prints_it() -> None:
    assert Session("PLAINTEXT", "fe80::1%eth0").client_host == "/fe80:0:0:0:0:0:0:1"
    assert Session("PLAINTEXT", "unknown").client_host == "/unknown"


def told(name: str, version: str) -> str:
    values = {"client_software_name": name, "client_software_version": version}
    _, channel = begin(make_services(), "api_versions", 3, **values)
    return channel.session.software


def test_a_session_knows_what_software_its_client_says_it_is() -> None:
    assert told("apache-kafka-java", "4.3.1") == "apache-kafka-java 4.3.1"
    assert told("a" * 30_000, "1") == "a" * MAX_KEPT_CHARS
    assert told("not a name", "1") == ""


def test_equal_clients_of_many_connections_are_in_memory_once() -> None:
    one, other = (Session("PLAINTEXT", "".join(["10.0.", "0.1"])) for _ in range(2))
    assert one.named("".join(["ap", "p"])) is other.named("".join(["a", "pp"]))
    assert one.address is other.address
    assert one.client_host is other.client_host
    assert Session("PLAINTEXT", "10.0.0.1", "User:bob").named("app").principal == "User:bob"
