"""Lets a broker authenticate the client of a relay (``upstream.identity = "client"``).

A relay is a client connection to a broker's listener, with its link to the broker (``relay``). SASL
requests pass to the broker. The first other request waits until the broker has proved that it
accepts the client (``client_login``).
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from groupkeeper.coordinator.gateway.client_login import (
    AUTHENTICATION_FAILED,
    ClientLogin,
    Permit,
)
from groupkeeper.coordinator.gateway.reply_stream import Change, ReplySlot
from groupkeeper.coordinator.gateway.request_stream import WholeRequest
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.protocol.versions import ApiKey

PROOF_ID: Final = 0
"""The correlation id of the request by which the broker proves who the client is."""


class LoginRelay(Protocol):
    """The methods of a relay that its login uses."""

    session: Session

    def pass_whole(self, frame: bytes, piece: WholeRequest, change: Change | None) -> None:
        """Send a frame to the broker in place of a request of the client. ``change`` converts the
        reply; None if the usual rules do.
        """
        ...

    def ask(self, frame: bytes, slot: ReplySlot) -> None:
        """Send our own request to the broker."""
        ...

    def end(self, reason: str, error: str) -> None:
        """Close the connection when all earlier requests are answered."""
        ...


class RelayLogin:
    """The SASL login of a client, seen from one relay: passes it to the broker, and follows it."""

    __slots__ = ("_login", "_relay")

    def __init__(self, login: ClientLogin, relay: LoginRelay) -> None:
        self._login = login
        self._relay = relay

    @property
    def is_proving(self) -> bool:
        """True while the broker has not answered the proof."""
        return self._login.is_proving

    @property
    def has_begun(self) -> bool:
        """True if another connection to the broker would not know the client."""
        return self._login.has_begun

    def admits(self, key: int | None) -> bool:
        """Return True if the next request may begin. Send the proof if it is due. ``key`` is the
        API key of the request; None if it is not known yet.

        Raises ProtocolError if the client is not authenticated, or its session has expired.
        """
        if key is None:
            return True
        permit = self._login.permit(key)
        if permit is Permit.AFTER_PROOF:
            slot = ReplySlot(ApiKey.METADATA, -1, PROOF_ID, self._proved)
            self._relay.ask(self._login.proof(PROOF_ID), slot)
        return permit is Permit.GRANTED

    def pass_on(self, piece: WholeRequest) -> None:
        """Pass a SaslHandshake or SaslAuthenticate to the broker.

        Raises ProtocolError if the request cannot be read.
        """
        frame = self._login.ask(piece.key, piece.version, piece.frame)
        self._relay.pass_whole(frame, piece, partial(self._answered, piece.version))

    def _answered(self, version: int, reply: bytes) -> bytes:
        reply = self._login.answered(version, reply)
        self._end_if_failed()
        return reply

    def _proved(self, reply: bytes) -> bytes:
        nothing = self._login.proved(reply)
        self._end_if_failed()
        session = self._relay.session
        session.principal = self._login.principal
        session.named(session.client.client_id)
        return nothing

    def _end_if_failed(self) -> None:
        if self._login.failure:
            self._relay.end(AUTHENTICATION_FAILED, self._login.failure)
