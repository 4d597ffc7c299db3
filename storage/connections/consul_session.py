"""A session of Consul that is renewed until it is closed, and reports its loss.

Consul keeps a session for at least its time to live (TTL) after the last renewal. Here a renewal
counts from the moment when it was sent. If no renewal was answered for a TTL, the session counts as
lost here. So this process stops relying on the session before Consul ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from groupkeeper.storage.connections.backoff import Backoff
from groupkeeper.storage.connections.consul import (
    LEAST_TTL_MS,
    MOST_LOCK_DELAY_MS,
    MOST_TTL_MS,
    ConsulClient,
)
from groupkeeper.storage.connections.consul_errors import ConsulError, ConsulUnavailable

RENEWALS_A_TTL = 3
"""The number of renewals in one time to live. Two in a row may fail before the session is in
danger."""


def boot_time() -> float:
    """Return seconds of a clock that also runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ConsulSession:
    """One session, from ``open`` to ``close`` or until it is lost."""

    def __init__(
        self,
        client: ConsulClient,
        ttl_ms: int,
        lock_delay_ms: int,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        if not LEAST_TTL_MS <= ttl_ms <= MOST_TTL_MS:
            raise ValueError(
                f"ttl_ms is {ttl_ms}: Consul keeps a session for {LEAST_TTL_MS} to {MOST_TTL_MS}"
            )
        if not 0 <= lock_delay_ms <= MOST_LOCK_DELAY_MS:
            raise ValueError(f"lock_delay_ms is {lock_delay_ms}: 0 to {MOST_LOCK_DELAY_MS}")
        self.id = ""
        self.lost_because: str | None = None
        self._client = client
        self._ttl_ms = ttl_ms
        self._lock_delay_ms = lock_delay_ms
        self._clock = clock
        self._good_until_s = 0.0
        self._on_lost: Callable[[str], None] = lambda _: None
        self._renewing: asyncio.Task[None] | None = None
        self._in_doubt = asyncio.Event()

    @property
    def is_good(self) -> bool:
        """True while Consul certainly keeps the session. Cheap: every message checks it."""
        return self.lost_because is None and self._clock() < self._good_until_s

    async def open(self, name: str, on_lost: Callable[[str], None]) -> None:
        """Create the session and start its renewals. ``on_lost`` is called at most once, with a
        reason.

        When the session ends, Consul deletes the keys that it has locked.
        """
        sent_s = self._clock()
        self.id = await self._client.create_session(name, self._ttl_ms, self._lock_delay_ms)
        self._good_until_s = sent_s + self._ttl_ms / 1000
        self._on_lost = on_lost
        self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        """End the session. If Consul does not answer, the session ends by its TTL."""
        if self._renewing is None:
            return
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        if self.lost_because is None:
            self.lost_because = "it was closed"
            with contextlib.suppress(ConsulError):
                await self._client.destroy_session(self.id)

    def doubt(self) -> None:
        """Renew the session now, to find out whether it has ended. The owner calls this if a key of
        the session has disappeared.
        """
        self._in_doubt.set()

    def lose(self, reason: str) -> None:
        """Treat the session as lost, and call ``on_lost`` with the reason. A second call does
        nothing.
        """
        if self.lost_because is None:
            self.lost_because = reason
            self._on_lost(reason)

    async def _renew(self) -> None:
        pause_s = self._ttl_ms / 1000 / RENEWALS_A_TTL
        backoff = Backoff(most_ms=1_000)
        wait_s = pause_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, self._good_until_s - self._clock())):
                    await self._in_doubt.wait()
            self._in_doubt.clear()
            sent_s = self._clock()
            if sent_s >= self._good_until_s:
                return self.lose(f"Consul did not answer for {self._ttl_ms} ms")
            try:
                left_s = self._good_until_s - sent_s
                known = await self._client.renew_session(self.id, min(pause_s, left_s))
            except ConsulUnavailable:
                wait_s = backoff.next_s()
            except ConsulError as error:
                return self.lose(f"Consul refused to renew it: {error}")
            else:
                if not known:
                    return self.lose("Consul ended the session")
                backoff.succeeded()
                wait_s, self._good_until_s = pause_s, sent_s + self._ttl_ms / 1000
