"""``groupkeeper health`` asks a running daemon whether it serves groups. Containers use it."""

from __future__ import annotations

import http.client

from groupkeeper.coordinator.cli.failing import FAILED, fail
from groupkeeper.coordinator.cli.plain_text import plain_lines
from groupkeeper.coordinator.daemon.address import HostPort

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on, not listening
"""The address to ask when a daemon listens on every address."""


def reachable(listen: HostPort) -> HostPort:
    """Return the address at which a daemon that listens on ``listen`` can be asked."""
    return HostPort(ANY.get(listen.host, listen.host), listen.port)


def check(address: HostPort, timeout_s: float) -> None:
    """Print the answer of GET /readyz; exit 1 unless groups are served."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(1_000).decode(errors="replace").strip()
    except TimeoutError:
        fail(f"http://{address}/readyz: no answer within {timeout_s:g} s", FAILED)
    except (OSError, http.client.HTTPException) as error:
        fail(f"http://{address}/readyz: {_reason(error)}; is the daemon running?", FAILED)
    finally:
        connection.close()
    if answer.status != http.client.OK:
        fail(text, FAILED)
    print(plain_lines(text))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
