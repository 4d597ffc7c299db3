"""Runs calls over connections to one agent of Consul, with a time limit and retries."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from groupkeeper.storage.backends.consul.url import ConsulUrl
from groupkeeper.storage.backends.key_value.sent_requests import SentRequests
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused
from groupkeeper.storage.connections.consul import ConsulClient
from groupkeeper.storage.connections.consul_errors import (
    ConsulError,
    ConsulRefused,
    ConsulUnavailable,
    TransactionFailed,
    is_denied,
)

TRIES: Final = 10
"""The number of attempts for a transaction if other processes change the same keys."""

RETRY_S: Final = 0.05
"""The pause before a call is tried again."""

_T = TypeVar("_T")


def connect(
    url: ConsulUrl, tls: ssl.SSLContext | None, count: Callable[[], None] = lambda: None
) -> ConsulClient:
    """Return a client for the agent of a URL. ``tls`` is the result of ``url.tls``. ``count`` is
    called before each request.
    """
    return ConsulClient(
        url.address, token=url.token, tls=tls, datacenter=url.datacenter, count=count
    )


class ConsulLink:
    """Runs calls over its own connections. Calls may overlap, and Consul may execute them in any
    order.
    """

    def __init__(
        self,
        url: ConsulUrl,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        round_trips: Counter[str],
    ) -> None:
        """``tls`` is the result of ``url.tls``. ``timeout_s`` limits each call. In ``round_trips``
        the link counts the requests of each call.
        """
        self._name = url.name
        self._timeout_s = timeout_s
        self._sent = SentRequests(round_trips)
        self._connect = partial(connect, url, tls, self._sent.count)
        self._client: ConsulClient | None = None
        """None before the first call, and after ``close``. A store that could not be opened may be
        opened again later."""

    async def run(
        self,
        call: str,
        work: Callable[[ConsulClient], Awaitable[_T]],
        *guards: StorageError,
        timeout_s: float | None = None,
    ) -> _T:
        """Run work that reads, or that reads and then writes. Return its result.

        The work is repeated if no agent or leader answers, or if something changed between reading
        and writing. Each of its transactions begins with checks. ``guards`` are the errors to raise
        if these checks fail: one error for each check. Raises another StorageError if the work
        fails or takes too long.

        A write without an answer may still be executed later. So each write must compare something
        that its repetition changes. Then the late write fails.
        """
        client = self._client = self._client or self._connect()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        refused = 0
        reason = ""
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        with self._sent.of(call):
                            return await work(client)
                    except ConsulUnavailable as error:
                        reason = f": {error}"
                        await asyncio.sleep(RETRY_S)
                    except TransactionFailed as failed:
                        if failed.position < len(guards):
                            raise guards[failed.position] from None
                        refused += 1
                        if refused == TRIES:
                            raise
        except TimeoutError:
            raise StoreBusy(
                f"{self._name}: no answer from the server within {limit_s:.1f} s{reason}"
            ) from None
        except ConsulError as error:
            raise explained(self._name, error) from error

    async def close(self) -> None:
        """Close all connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def explained(name: str, error: ConsulError) -> StorageError:
    """Return the error of a call as a StorageError with a message of one line."""
    text = " ".join(str(error).split())
    if isinstance(error, ConsulRefused) and is_denied(error):
        return StoreRefused(
            f"{name}: {text}; the token of storage.password_file needs the policy write for "
            "key_prefix of this store"
        )
    if isinstance(error, ConsulRefused):
        return StorageError(f"{name}: Consul refuses a request: {text}")
    return StorageError(f"{name}: a transaction failed {TRIES} times: {text}")
