"""A connection to Consul: keys, sessions and locks over its HTTP API, and blocking queries.

It raises ConsulUnavailable for errors after which a retry may help. Only ``watch`` retries by
itself, because only the caller knows for how long a retry makes sense.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2

from groupkeeper.storage.connections.backoff import Backoff
from groupkeeper.storage.connections.consul_errors import (
    ConsulError,
    ConsulRefused,
    ConsulUnavailable,
    SessionGone,
    TransactionFailed,
)

LEAST_TTL_MS = 10_000
"""The shortest TTL of a session that Consul accepts."""
MOST_TTL_MS = 86_400_000
MOST_LOCK_DELAY_MS = 60_000
"""The longest lock delay. Consul silently shortens a longer one."""
MOST_OPERATIONS = 64
"""The largest number of operations in one transaction."""
MOST_TRANSACTION_BYTES = 512 * 1024
"""The largest body of a transaction, in which values are in base64 (``txn_max_req_len``)."""
READING_VERBS = ("get", "get-tree")

_ANSWER_S = 10.0
"""How long to wait for an answer. A write waits for a majority of the servers, and electing their
leader takes some seconds."""
_BLOCK_S = 60.0
"""How long one blocking query waits; Consul adds up to a sixteenth of it."""


class ConsulEntry(NamedTuple):
    """One key and its value. Consul's index is a counter of changes. ``at_index`` is the index of
    the key's last change. ``created_at`` is the index of its creation. ``session`` is the session
    that has the key's lock, or None.
    """

    key: str
    value: bytes
    at_index: int
    session: str | None
    created_at: int = 0


class ConsulView(NamedTuple):
    """The keys below a prefix, at one value of Consul's index (a counter of changes)."""

    at_index: int
    entries: tuple[ConsulEntry, ...]


def _trusted(url: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificate authorities. For plain HTTP, which
    never uses the context, it trusts none: reading the authorities takes up to 0.1 s.
    """
    if url.startswith("https:"):
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class ConsulClient:
    """Calls one Consul agent over HTTP."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        datacenter: str | None = None,
        count: Callable[[], None] = lambda: None,
    ) -> None:
        """``count`` is called before each request, in the task that sends it."""
        self._count = count
        url = address if "://" in address else f"http{'s' if tls else ''}://{address}"
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"X-Consul-Token": token} if token else {},
            params={"dc": datacenter} if datacenter else {},
            verify=tls or _trusted(url),
            timeout=httpx2.Timeout(_ANSWER_S),
            # blocking queries keep their connections, and other requests must not wait for them
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> ConsulClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, key: str) -> ConsulEntry | None:
        """Return a key; None if it does not exist. The answer comes from the leader, so it is up to
        date.
        """
        answer = await self._ask("GET", _path(key), {"consistent": ""})
        return None if answer.status_code == 404 else _entries(answer)[0]

    async def list(self, prefix: str, *, behind: int = 0) -> ConsulView:
        """Return the keys that begin with the prefix.

        With ``behind``, an index, wait up to a minute until something below the prefix has changed
        after this index.
        """
        params = {"recurse": ""}
        timeout = _ANSWER_S
        if behind:
            params |= {"index": str(behind), "wait": f"{_BLOCK_S:.0f}s"}
            timeout += _BLOCK_S * 17 / 16
        answer = await self._ask("GET", _path(prefix), params, timeout=timeout)
        entries = () if answer.status_code == 404 else _entries(answer)
        # Consul's documentation: an index is above zero, otherwise the next query would not wait
        return ConsulView(max(1, int(answer.headers.get("x-consul-index", 1))), entries)

    async def keys(
        self, prefix: str, separator: str = "", *, consistent: bool = False
    ) -> tuple[str, ...]:
        """Return the names of the keys that begin with a prefix, in order. With a separator, each
        name ends at the first separator after the prefix, and is returned once, like the entries
        of a directory. With ``consistent`` the answer is up to date.
        """
        params = {"keys": ""} | ({"separator": separator} if separator else {})
        params |= {"consistent": ""} if consistent else {}
        answer = await self._ask("GET", _path(prefix), params)
        return () if answer.status_code == 404 else tuple(answer.json())

    async def watch(self, prefix: str) -> AsyncIterator[ConsulView]:
        """Yield the keys that begin with a prefix now, and again after every change.

        Several quick changes may be yielded as one. While Consul is unavailable, this retries.
        """
        index, backoff = 0, Backoff(most_ms=2_000)
        while True:
            try:
                view = await self.list(prefix, behind=index)
            except ConsulUnavailable:
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.succeeded()
            if view.at_index < index:
                index = 0  # after a restore from a snapshot the index may be lower
            elif view.at_index != index:
                index = view.at_index
                yield view

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        cas: int | None = None,
        acquire: str | None = None,
        release: str | None = None,
    ) -> bool:
        """Write a key. With ``acquire``, that session also acquires the key's lock. With
        ``release``, that session releases the lock. Return False if the key's index is not ``cas``,
        or if another session holds the lock.
        """
        named = {"cas": cas, "acquire": acquire, "release": release}
        params = {name: str(each) for name, each in named.items() if each is not None}
        return bool((await self._ask("PUT", _path(key), params, content=value)).json())

    async def delete(self, key: str, *, cas: int | None = None, recurse: bool = False) -> bool:
        """Delete a key, or with ``recurse`` all keys that begin with it. Return False if the index
        of the key is not ``cas``."""
        params = {} if cas is None else {"cas": str(cas)}
        return bool(
            (await self._ask("DELETE", _path(key), params | ({"recurse": ""} if recurse else {})))
            .json()
        )  # fmt: skip

    async def transact(self, *operations: Mapping[str, Any]) -> int | None:
        """Execute all operations or none. Return the index of the last change, or None if one
        operation fails. Raises SessionGone if an operation acquires a lock for a session that has
        ended.
        """
        try:
            return max(entry.at_index for entry in await self.execute(*operations))
        except TransactionFailed as failed:
            if "invalid session" in str(failed):
                raise SessionGone(str(failed)) from failed
            return None

    async def execute(self, *operations: Mapping[str, Any]) -> tuple[ConsulEntry, ...]:
        """Execute all operations or none. Return the entries that they read or changed, in order.
        A changed entry is returned without its value. If all operations are reads, the answer is
        up to date.

        Raises TransactionFailed if an operation fails, and then nothing has changed.
        """
        body = [{"KV": {**each, **_encoded(each)}} for each in operations]
        only_reads = all(each["Verb"] in READING_VERBS for each in operations)
        params = {"consistent": ""} if only_reads else {}
        answer = await self._ask("PUT", "/v1/txn", params, json=body)
        found = answer.json()
        if answer.status_code == 409:
            errors = {int(each["OpIndex"]): str(each["What"]) for each in found["Errors"]}
            if any("Permission denied" in what for what in errors.values()):
                raise ConsulRefused(f"permission denied: {'; '.join(errors.values())}")
            raise TransactionFailed(errors)
        return tuple(_entry(each["KV"]) for each in found["Results"])

    async def create_session(self, name: str, ttl_ms: int, lock_delay_ms: int) -> str:
        """Return the id of a new session. The session lives as long as it is renewed, and depends
        on no health check.

        A health check could end the session while its owner still relies on it.
        """
        body = {
            "Name": name,
            "TTL": f"{ttl_ms}ms",
            "LockDelay": f"{lock_delay_ms}ms",
            "Behavior": "delete",
            "NodeChecks": [],
        }
        return str((await self._ask("PUT", "/v1/session/create", json=body)).json()["ID"])

    async def renew_session(self, session: str, timeout_s: float) -> bool:
        """Renew a session. Return False if it no longer exists."""
        answer = await self._ask("PUT", f"/v1/session/renew/{session}", timeout=timeout_s)
        return answer.status_code != 404

    async def destroy_session(self, session: str) -> None:
        """End a session. Its locks stay blocked for the lock delay."""
        await self._ask("PUT", f"/v1/session/destroy/{session}")

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        timeout: float = _ANSWER_S,  # noqa: ASYNC109 - after it httpx2 closes the connection
        **body: Any,
    ) -> httpx2.Response:
        self._count()
        try:
            answer = await self._http.request(
                method, path, params=params, timeout=httpx2.Timeout(timeout, connect=5), **body
            )
        # OSError: TLS failed during an answer
        except (httpx2.TransportError, OSError) as error:
            raise ConsulUnavailable(f"{type(error).__name__}: {error}") from error
        if answer.status_code in (200, 404, 409):
            return answer
        raise _error(answer)


def _error(answer: httpx2.Response) -> ConsulError:
    text = answer.text.strip()
    said = f"{answer.status_code} {text}"
    if "invalid session" in text or "Session id" in text:
        return SessionGone(said)
    # 429: the agent limits the rate, or the number of connections
    if "must be between" in text or (answer.status_code < 500 and answer.status_code != 429):
        denied = "rpc error making call: Permission denied" in text or answer.status_code == 403
        return ConsulRefused(f"permission denied: {said}" if denied else said)
    return ConsulUnavailable(said)


def _path(key: str) -> str:
    return "/v1/kv/" + quote(key, safe="/")


def _entries(answer: httpx2.Response) -> tuple[ConsulEntry, ...]:
    return tuple(map(_entry, answer.json()))


def _entry(found: Mapping[str, Any]) -> ConsulEntry:
    return ConsulEntry(
        found["Key"],
        base64.b64decode(found["Value"] or ""),
        found["ModifyIndex"],
        found.get("Session"),
        found["CreateIndex"],
    )


def _encoded(operation: Mapping[str, Any]) -> dict[str, str]:
    value = operation.get("Value")
    return {} if value is None else {"Value": base64.b64encode(value).decode()}
