"""Clients in Java, Go and JavaScript through the gateway: the lives of groups that
``tests/conformance`` has, and no reply to any of them names the upstream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.helpers.clients.ecosystem import Host, Unavailable
from tests.helpers.daemon.recorded_gateway import RecordedGateway

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

LIVES = {
    "java": (
        "java-consumer/range",
        "java-consumer/commits",
        "java-consumer/pattern",
        "java-admin/list-groups",
        "java-admin/describe-groups",
        "java-admin/offsets",
        "java-admin/delete-offsets",
        "java-admin/group-configs",
    ),
    "go": (
        "franz-go/life-cycle",
        "franz-go/cooperative-sticky",
        "franz-go/static-member",
        "franz-go/regex",
        "kadm/groups",
        "kadm/offsets",
        "sarama-newest/consumer-group",
    ),
    "node": ("kafkajs/life-cycle", "kafkajs-admin/groups", "kafkajs-admin/offsets"),
}


def group_of(life: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", life)


@pytest.fixture(scope="module")
def hosts(recorded: RecordedGateway) -> Iterator[dict[str, Host]]:
    """The programs of all languages. They live their lives side by side."""
    started = {
        kind: Host(kind, recorded.bootstrap, [(life, group_of(life)) for life in lives])
        for kind, lives in LIVES.items()
    }
    try:
        yield started
    finally:
        for host in started.values():
            host.end()


@pytest.mark.parametrize("kind", LIVES)
def test_groups_live_and_no_reply_names_the_upstream(
    hosts: dict[str, Host], recorded: RecordedGateway, kind: str
) -> None:
    try:
        hosts[kind].versions()
    except Unavailable as lack:
        pytest.skip(str(lack))
    for life in LIVES[kind]:
        hosts[kind].live(life, group_of(life))
    assert len(recorded.received()) > 100
    assert recorded.leaks() == []
