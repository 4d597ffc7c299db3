from __future__ import annotations

from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.handlers.exchange import INTERNAL_ERROR, Exchange
from groupkeeper.coordinator.server.stats import CloseReason
from groupkeeper.protocol.last_requests import LastRequests


class RecordingChannel:
    """A connection as far as an exchange that is given up sees it."""

    def __init__(self) -> None:
        self.refusals: list[tuple[Exchange, str]] = []

    def end(self, reason: str, error: str) -> None:
        raise AssertionError(error)

    def refused(self, exchange: Exchange, reason: str) -> None:
        self.refusals.append((exchange, reason))


def test_a_request_that_met_the_same_bug_twice_closes_its_connection() -> None:
    channel = RecordingChannel()
    exchange = Exchange(channel, 12, 4, 7, Client("app", "/127.0.0.1"), b"", 0, LastRequests())  # type: ignore[arg-type]
    exchange.abort()
    assert channel.refusals == [(exchange, INTERNAL_ERROR)]
    assert CloseReason.INTERNAL_ERROR == INTERNAL_ERROR
