"""``groupkeeper health`` asks a running daemon whether it serves groups. Containers use this
command as their health check.

Other commands use ``page_of`` too, to read a page of the daemon's HTTP port.
"""

from __future__ import annotations

import http.client

from groupkeeper.coordinator.cli.failing import FAILED, fail
from groupkeeper.coordinator.cli.plain_text import plain_lines
from groupkeeper.coordinator.daemon.address import HostPort

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on, not listening
"""Maps an address that means "listen on every address" to the address of this machine."""


def reachable(listen: HostPort) -> HostPort:
    """Return the address for requests to a daemon of this machine that listens on ``listen``."""
    return HostPort(ANY.get(listen.host, listen.host), listen.port)


def check(address: HostPort, timeout_s: float) -> None:
    """Print the answer of GET /readyz. Exit with FAILED if the daemon does not serve groups."""
    status, page = page_of(address, "/readyz", timeout_s, 1_000)
    text = page.decode(errors="replace").strip()
    if status != http.client.OK:
        fail(text, FAILED)
    print(plain_lines(text))


def page_of(address: HostPort, path: str, timeout_s: float, max_bytes: int) -> tuple[int, bytes]:
    """Return the HTTP status and the first ``max_bytes`` of a page of the daemon. If the daemon
    does not answer, print the reason and exit with FAILED.
    """
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(max_bytes)
    except TimeoutError:
        fail(f"http://{address}{path}: no answer within {timeout_s:g} s", FAILED)
    except (OSError, http.client.HTTPException) as error:
        fail(f"http://{address}{path}: {_reason(error)}; is the daemon running?", FAILED)
    finally:
        connection.close()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
