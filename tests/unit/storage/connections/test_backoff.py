"""Waits that grow, and never beyond their limit."""

from __future__ import annotations

from groupkeeper.storage.connections.backoff import Backoff


def test_waits_double_up_to_a_limit_and_a_success_starts_over():
    backoff = Backoff(first_ms=100, most_ms=1_000)
    waits_ms = [backoff.next_s() * 1000 for _ in range(100)]
    for waited, expected in zip(waits_ms, [100, 200, 400, 800, *[1_000] * 96], strict=True):
        assert 0.8 * expected <= waited <= expected
    backoff.succeeded()
    assert backoff.next_s() <= 0.1
