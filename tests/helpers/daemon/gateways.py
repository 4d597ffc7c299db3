"""The daemon in gateway mode, in front of a real Kafka."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.daemon.servers import ArmedDaemon, Groupkeeper

PORTS = 6
"""The ports for listeners of brokers. A test has up to three brokers."""


def free_ports(count: int) -> range:
    """Return a range of loopback ports that are free now.

    They lie below those of ``free_port``, so the daemon's other ports are not among them.
    """
    while True:
        first = random.randrange(12_000, 20_000 - count)
        ports = range(first, first + count)
        if all(_is_free(port) for port in ports):
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class FailpointGateway(ArmedDaemon):
    """A gateway that can kill itself at a step of a transaction (``failpoint_gateway.STEPS``)."""

    entry = ("-m", "tests.helpers.daemon.failpoint_gateway")


def a_gateway(
    directory: Path, upstream: str, settings: Mapping[str, Any] | None = None
) -> Groupkeeper:
    """Return a daemon in front of the brokers of ``upstream``. It is not started."""
    return Groupkeeper(directory, settings=_settings(upstream, settings or {}))


def a_failing_gateway(
    directory: Path, upstream: str, settings: Mapping[str, Any] | None = None
) -> FailpointGateway:
    """Return the same daemon as ``a_gateway``, with failpoints."""
    return FailpointGateway(directory, settings=_settings(upstream, settings or {}))


def _settings(upstream: str, others: Mapping[str, Any]) -> dict[str, Any]:
    ports = free_ports(PORTS)
    return {
        "upstream.bootstrap": upstream,
        "upstream.ports": f"{ports.start}-{ports.stop - 1}",
        "upstream.metadata_refresh_ms": 500,
        **others,
    }
