"""The pytest plugin (entry point ``pytest11``): the fixture ``groupkeeper``.

    def test_my_consumer_commits(groupkeeper):
        groupkeeper.create_topic("orders", 3)
        consume(groupkeeper.bootstrap, group="billing")
        assert groupkeeper.committed("billing") == {("orders", 0): 17}

    @pytest.mark.groupkeeper(topics={"orders": 12}, min_session_timeout_ms=500)
    def test_an_eviction(groupkeeper): ...

pytest imports this module at every start wherever we are installed, so it imports nothing of ours
before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from groupkeeper.coordinator.testkit.server import SyncGroupkeeperServer


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "groupkeeper(topics=None, **options): options of the fixture groupkeeper, those of "
        "groupkeeper.coordinator.testkit.server.ServerOptions",
    )


@pytest.fixture
def groupkeeper_options() -> dict[str, Any]:
    """Return options for every server of the fixture ``groupkeeper``. Override it in a conftest."""
    return {}


@pytest.fixture
def groupkeeper(
    request: pytest.FixtureRequest, groupkeeper_options: dict[str, Any]
) -> Iterator[SyncGroupkeeperServer]:
    """Yield an empty coordinator for this test alone, on a free loopback port.

    It runs in its own thread, so tests with and without an event loop can use it. The marker
    ``groupkeeper`` sets its options.
    """
    from groupkeeper.coordinator.testkit.server import SyncGroupkeeperServer

    if not isinstance(groupkeeper_options, Mapping):
        raise TypeError(
            "the fixture groupkeeper_options must return a mapping of options, such as "
            f"{{'topics': {{'orders': 12}}}}, not {groupkeeper_options!r}"
        )
    options = dict(groupkeeper_options)
    for mark in reversed(list(request.node.iter_markers("groupkeeper"))):
        options |= _of_marker(*mark.args, **mark.kwargs)
    with SyncGroupkeeperServer(**options) as server:
        yield server


def _of_marker(topics: Any = None, **options: Any) -> dict[str, Any]:
    """Return the marker's arguments as options; the positional one is ``topics``."""
    return options if topics is None else {"topics": topics, **options}
