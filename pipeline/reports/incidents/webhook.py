"""Posts incidents to a webhook. Requests are signed and retried. An incident that the webhook has
accepted is not posted again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from groupkeeper.pipeline.reports.incidents.deliveries import Incident, Told, after, news
from groupkeeper.pipeline.reports.incidents.find import FoundIncidents
from groupkeeper.pipeline.tables.files import replace_local

TRIES: Final = 5
"""The largest number of times that a request is sent. With the pauses, this takes at least 15
seconds."""

FIRST_PAUSE_SECONDS: Final = 1.0
"""The pause after the first failure. Each later pause is twice as long as the one before."""

TIMEOUT_SECONDS: Final = 10.0
"""How long to wait for the answer to one request."""

MAX_PER_REQUEST: Final = 100
"""The largest number of incidents in one request, about 100 kB. If there are more incidents,
several requests are sent."""

SIGNATURE: Final = "X-Groupkeeper-Signature"
TIMESTAMP: Final = "X-Groupkeeper-Timestamp"
DELIVERY: Final = "X-Groupkeeper-Delivery"
"""The header with the id of a request. A retry has the same id, so that the receiver can ignore
repeated requests."""

_AGAIN: Final = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class NotDelivered(Exception):
    """The webhook did not accept a request. The message names the reason."""


@dataclass(frozen=True)
class Webhook:
    """The address to which incidents are posted, and the key of the signature."""

    url: str
    secret: bytes | None = None
    """The key of the signature; without one, requests are not signed."""
    sleep: Callable[[float], object] = time.sleep
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"{self.url} is not the address of a webhook: http:// or https://")

    def post(self, incidents: Sequence[Incident], as_of_ms: int | None) -> None:
        """Post incidents in one request, with retries. Raises NotDelivered if the webhook does not
        accept the request.
        """
        text = json.dumps({"format": 1, "as_of_ms": as_of_ms, "incidents": list(incidents)})
        body = text.encode()
        delivery = hashlib.sha256(body).hexdigest()[:32]
        pause = FIRST_PAUSE_SECONDS
        for number in range(1, TRIES + 1):
            problem, is_final = self._try(body, delivery)
            if problem is None:
                return
            if is_final or number == TRIES:
                tries = "1 try" if number == 1 else f"{number} tries"
                raise NotDelivered(f"{self._place}: {problem} ({tries})")
            self.sleep(pause)
            pause *= 2

    @property
    def _place(self) -> str:
        """Return the host of the URL, for messages. The path may be secret, so it is left out."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def _try(self, body: bytes, delivery: str) -> tuple[str | None, bool]:
        """Send a request once. Return the problem, or None if the request was accepted. Also return
        True if a retry cannot help.
        """
        headers = {"Content-Type": "application/json", DELIVERY: delivery}
        if self.secret is not None:
            at = str(int(self.now()))
            headers |= {TIMESTAMP: at, SIGNATURE: signature(self.secret, at, body)}
        request = urllib.request.Request(self.url, body, headers)  # noqa: S310  http(s) alone
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):  # noqa: S310
                return None, False
        except urllib.error.HTTPError as error:
            error.close()
            may_change = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code in _AGAIN
            return f"it answered {error.code}", not may_change
        except OSError as error:
            return str(getattr(error, "reason", error)), False


def signature(secret: bytes, at: str, body: bytes) -> str:
    """Return the signature of a request: the HMAC-SHA256 of its time, a dot, and its body."""
    return "sha256=" + hmac.new(secret, at.encode() + b"." + body, hashlib.sha256).hexdigest()


def tell(webhook: Webhook, found: FoundIncidents, memory: Path) -> int:
    """Post the incidents that began or ended since the last call. Return the number of incidents
    posted.

    The file ``memory`` has the open incidents that the webhook has accepted. It is written only
    after every request was accepted. So after a failure, the next call posts the same incidents
    again. Raises NotDelivered if the webhook does not accept a request, or the file is damaged.
    """
    told = _read(memory)
    incidents = news(told, found)
    for first in range(0, len(incidents), MAX_PER_REQUEST):
        webhook.post(incidents[first : first + MAX_PER_REQUEST], found.as_of_ms)
    replace_local(memory, json.dumps(after(found).to_json()).encode())
    return len(incidents)


def _read(memory: Path) -> Told:
    try:
        kept: dict[str, Any] = json.loads(memory.read_text())
        return Told.of_json(kept)
    except FileNotFoundError:
        return Told()
    except (ValueError, KeyError) as error:
        raise NotDelivered(f"{memory}: {error}. Remove the file to begin anew") from error
