"""Create kazoo's client from our settings, translate its errors, and stop its threads."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import kazoo.client
import kazoo.exceptions
import kazoo.handlers.threading
import kazoo.security

from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    NotAllowed,
    ZooKeeperError,
)
from groupkeeper.storage.connections.zookeeper_settings import ZooKeeperSettings

RECONNECT_DELAY_S: Final = 0.05
MAX_RECONNECT_DELAY_S: Final = 1.0
"""The longest pause between two attempts to connect. It is short because a session soon expires,
and its owner waits."""

CONNECT_TRIES: Final = 3
MIN_ANSWER_S: Final = 1.0
"""An attempt to connect may take a third of the session timeout, but at least this time (and never
more than the session timeout). A starting server may accept a connection and never answer. Without
a limit, kazoo would then wait until the session is lost."""

_KAZOO_LOG: Final = logging.getLogger("groupkeeper.kazoo")
# without this, kazoo's log would appear on the terminal of a program that configures no logging
_KAZOO_LOG.addHandler(logging.NullHandler())

_ERRORS: Final[dict[type[Exception], type[ZooKeeperError]]] = {
    kazoo.exceptions.NoNodeError: NodeMissing,
    kazoo.exceptions.NodeExistsError: NodeExists,
    kazoo.exceptions.NotEmptyError: NodeNotEmpty,
    kazoo.exceptions.BadVersionError: NodeChanged,
    kazoo.exceptions.NoAuthError: NotAllowed,
    kazoo.exceptions.AuthFailedError: NotAllowed,
    kazoo.exceptions.InvalidACLError: NotAllowed,
}
_SAY: Final[dict[type[ZooKeeperError], str]] = {
    NodeMissing: "no such node",
    NodeExists: "exists",
    NodeNotEmpty: "has children",
    NodeChanged: "was changed by another client",
    NotAllowed: "the access list does not allow this, or the credentials are wrong",
}


def refusal(path: str, result: object) -> ZooKeeperError | None:
    """Convert an error of kazoo about a znode to our error. Return None for any other result."""
    kind = next((ours for theirs, ours in _ERRORS.items() if isinstance(result, theirs)), None)
    return None if kind is None else kind(f"{path}: {_SAY[kind]}")


def new_client(settings: ZooKeeperSettings, negotiated: Callable[[int], None]) -> Any:
    """Return kazoo's client, which is not yet connected. ``negotiated`` is called on a thread of
    kazoo, with the session timeout in milliseconds that a server has chosen.
    """
    tls = settings.tls
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {
            "use_ssl": True,
            "ca": _authorities(tls.ca_file),
            "certfile": None if tls.cert_file is None else str(tls.cert_file),
            "keyfile": None if tls.key_file is None else str(tls.key_file),
            "keyfile_password": tls.key_password,
            "verify_certs": tls.checks_certificate,
            "check_hostname": tls.checks_certificate and tls.checks_hostname,
        }
    delays = {"max_tries": -1, "delay": RECONNECT_DELAY_S, "max_delay": MAX_RECONNECT_DELAY_S}
    client = kazoo.client.KazooClient(
        hosts=",".join(settings.address.hosts),
        timeout=settings.session_timeout_ms / 1000,
        connection_retry=delays,
        default_acl=access_list(settings),
        auth_data=[("digest", settings.digest)] if settings.digest is not None else [],
        logger=_KAZOO_LOG,
        handler=_Handler(),
        **secured,
    )
    _watch_handshakes(client, negotiated)
    return client


def _patience_s(timeout: float) -> float:
    return min(timeout, max(MIN_ANSWER_S, timeout / CONNECT_TRIES))


class _Handler(kazoo.handlers.threading.SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with a time limit for each attempt to connect."""

    failure: str = ""
    """Why the last attempt to connect failed; "" if it succeeded, or if there was none. Only the
    text is kept: the traceback of an exception would keep the socket open."""

    def create_connection(self, *args: Any, timeout: float, **named: Any) -> Any:
        try:
            return super().create_connection(*args, timeout=_patience_s(timeout), **named)
        except Exception as error:
            self.failure = _text_of(error)
            raise


def why_not_connected(client: Any) -> str:
    """Return why the last attempt of a client to connect failed, such as a certificate that is not
    trusted. Return "" if it succeeded. kazoo only logs it, and tries again.
    """
    failure: str = client.handler.failure
    return failure


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def _watch_handshakes(client: Any, negotiated: Callable[[int], None]) -> None:
    """Limit the time of each later handshake of this client.

    ``negotiated`` is called with the session timeout that the server has chosen. kazoo does not
    publish this timeout.
    """
    connection = client._connection
    invoke = connection._invoke

    def limited_invoke(timeout: float, request: Any, xid: int | None = None) -> Any:
        try:
            answer = invoke(_patience_s(timeout), request, xid)
        except Exception as error:
            client.handler.failure = _text_of(error)
            raise
        client.handler.failure = ""
        if isinstance(answer, tuple) and getattr(answer[0], "time_out", 0) > 0:
            negotiated(answer[0].time_out)
        return answer

    connection._invoke = limited_invoke


def _authorities(ca_file: Path | None) -> str | None:
    if ca_file is not None:
        return str(ca_file)
    import ssl  # imported only if TLS is used

    return ssl.get_default_verify_paths().cafile


def access_list(settings: ZooKeeperSettings) -> list[Any]:
    """Return the access list for new znodes, in kazoo's form."""
    letters = ("read", "write", "create", "delete", "admin")
    return [
        kazoo.security.make_acl(
            rule.scheme, rule.id, **{name: name[0] in rule.permissions for name in letters}
        )
        for rule in settings.access
    ]


def stop_client(client: Any) -> None:
    """Stop kazoo's threads. Waits for threads that are connecting."""
    with contextlib.suppress(kazoo.exceptions.WriterNotClosedException):
        client.stop()
        client.close()
