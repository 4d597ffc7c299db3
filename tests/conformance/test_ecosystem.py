"""The Java, Go and JavaScript clients, each through its lives against the real process.

What happens in a life stands in ``java/``, ``go/`` and ``node/`` beside this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.conformance.conftest import Found, group_of
from tests.helpers.clients.compatibility import OURS_ALONE, OWN_SERVER, Scenario, of_host, package
from tests.helpers.clients.ecosystem import Host

pytestmark = pytest.mark.clients


def _lives(host: str) -> pytest.MarkDecorator:
    lives = [life for life in of_host(host) if life.name not in OWN_SERVER]
    return pytest.mark.parametrize("life", lives, ids=lambda life: life.name)


def _live(host: Host, life: Scenario, found: Found) -> None:
    found(life.name, host.versions()[package(life.name)])
    if os.environ.get("CONFORMANCE_KAFKA") and life.name in OURS_ALONE:
        with pytest.raises(AssertionError):
            host.live(life.name, group_of(life))
        return
    host.live(life.name, group_of(life))


@pytest.mark.go
@_lives("go")
def test_a_go_client(life: Scenario, programs: Callable[[str], Host], found: Found) -> None:
    _live(programs("go"), life, found)


@pytest.mark.node
@_lives("node")
def test_a_javascript_client(life: Scenario, programs: Callable[[str], Host], found: Found) -> None:
    _live(programs("node"), life, found)


@pytest.mark.java
@_lives("java")
def test_a_java_client(life: Scenario, programs: Callable[[str], Host], found: Found) -> None:
    _live(programs("java"), life, found)
