"""Follows how the upstream authenticates a client (``upstream.identity = "client"``). Pure.

The upstream is the Kafka cluster behind the gateway. SaslHandshake and SaslAuthenticate pass to one
of its brokers, and the answers of this broker decide. Only the mechanism and the name of the client
are kept here, no secret.

How many tokens a client sends depends on the mechanism, so we do not know which one is the last.
Therefore we ask the broker. The client's first other request waits for the **proof**: a Metadata
request for no topic, which we send on the client's connection to the broker. The answer names
brokers only if the client is authenticated. Every authenticated client may send such a request.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Any, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.apis import LOGIN_APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from groupkeeper.coordinator.gateway.message import checked, request_of
from groupkeeper.coordinator.handlers.session import ANONYMOUS
from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES
from groupkeeper.protocol.versions import ApiKey

NOT_AUTHENTICATED: Final = "not_authenticated"
"""A request came before the client had authenticated itself. As in Kafka, we do not answer it."""
AUTHENTICATION_FAILED: Final = "authentication_failed"
"""The upstream has refused the client."""
SESSION_EXPIRED: Final = "session_expired"
"""The time that the upstream gave the client is over (connections.max.reauth.ms)."""

UNKNOWN: Final = "Unknown"
"""The principal type used if only the upstream knows the name. The mechanism is then the name."""
MAX_NAME_CHARS: Final = 249
"""Longer names of clients are cut to this length, because the event log has one in each commit."""

_WITH_LIFETIME: Final = 1
"""The first version of SaslAuthenticate that says when the session ends (KIP-368)."""
_LIFETIME_BYTES: Final = 8
_VERSION_AT: Final = PREFIX_BYTES + 2
_PROOF_VERSIONS: Final = range(1, 13)
"""The versions of Metadata in which an empty list of topics means no topic. In version 0 it means
all topics."""
_MAX_ELEMENTS: Final = 100
_CLIENT_ID: Final = "groupkeeper"


class Permit(Enum):
    """The permission to serve the next request of a client."""

    GRANTED = 0
    LATER = 1
    """The request waits until the broker has answered an earlier one."""
    AFTER_PROOF = 2
    """The request waits for the answer to the proof, which the caller must send now."""


class _Stage(IntEnum):
    NEW = 0
    CHOSEN = 1
    """The broker has accepted a mechanism."""
    TOLD = 2
    """The broker has accepted a token. It may have been the last one."""
    PROVEN = 3


class ClientLogin:
    """The authentication of one client connection, which the client may repeat (KIP-368)."""

    # fmt: off
    __slots__ = (
        "_asked", "_clock", "_ends_s", "_has_lifetime", "_mechanism", "_name", "_proof_version",
        "_stage", "failure", "principal",
    )
    # fmt: on

    def __init__(
        self, treatments: Mapping[tuple[int, int], object], clock: Callable[[], float]
    ) -> None:
        """``treatments`` has each (key, version) that the broker serves. ``clock`` is monotonic."""
        self._clock = clock
        self._has_lifetime = (SASL_AUTHENTICATE, _WITH_LIFETIME) in treatments
        served = [each for each in _PROOF_VERSIONS if (ApiKey.METADATA, each) in treatments]
        self._proof_version = max(served, default=_PROOF_VERSIONS.start)
        self._stage = _Stage.NEW
        self._asked: tuple[int, int, str] | None = None
        """The request that the broker has not answered yet: API key, version, and text. The text is
        the mechanism (SaslHandshake), the name (SaslAuthenticate) or empty (the proof)."""
        self._mechanism = ""
        self._name = ""
        """The principal that the client claims in its first token."""
        self._ends_s: float | None = None
        self.principal = ANONYMOUS
        """The proven principal of the client. The client cannot change it by another
        authentication.
        """
        self.failure = ""
        """Why the upstream refuses the client; "" if it does not."""

    @property
    def has_begun(self) -> bool:
        """True if the authentication has begun. From then on the client needs this very connection
        to the broker.
        """
        return self._stage is not _Stage.NEW or self._asked is not None

    @property
    def is_proving(self) -> bool:
        """True while the broker has not answered the proof."""
        return self._asked is not None and self._asked[0] == ApiKey.METADATA

    def restart(self) -> None:
        """Begin again on a new connection to a broker."""
        self._stage, self._asked = _Stage.NEW, None

    def permit(self, key: int) -> Permit:
        """Return whether a request of this API may be served now.

        ApiVersions and the SASL requests need no proof. Raises ProtocolError if the client is not
        authenticated, or if its session has expired. The caller then ends the connection.
        """
        if self._asked is not None:
            return Permit.LATER
        if key in LOGIN_APIS or key == ApiKey.API_VERSIONS:
            return Permit.GRANTED
        if self._stage < _Stage.TOLD:
            raise ProtocolError(
                NOT_AUTHENTICATED, f"a request of API {key} before the client is authenticated"
            )
        if self._ends_s is not None and self._clock() >= self._ends_s:
            raise ProtocolError(
                SESSION_EXPIRED, f"a request of API {key} after the session of {self._name}"
            )
        return Permit.GRANTED if self._stage is _Stage.PROVEN else Permit.AFTER_PROOF

    # --- SaslHandshake and SaslAuthenticate -------------------------------------------------------

    def ask(self, key: int, version: int, frame: bytes) -> bytes:
        """Return the frame to send to the broker for a SaslHandshake or SaslAuthenticate of the
        client. Raises ProtocolError if the request cannot be read.

        A SaslAuthenticate of version 0 is sent as version 1 if the broker has it: the answer of
        version 1 also says when the session ends.
        """
        request = _read_request(key, version, frame)
        if key == SASL_HANDSHAKE:
            self._asked = key, version, request.mechanism
            return frame
        name = self._name
        if self._stage is not _Stage.TOLD:
            name = principal_of(self._mechanism, request.auth_bytes)
        sent = _WITH_LIFETIME if version == 0 and self._has_lifetime else version
        self._asked = key, sent, name
        return frame[:_VERSION_AT] + sent.to_bytes(2, "big") + frame[_VERSION_AT + 2 :]

    def answered(self, version: int, reply: bytes) -> bytes:
        """Process the answer of the broker. Return the answer for the client. ``version`` is the
        version of the client's request.

        Sets ``failure`` if the broker refuses the client. Raises ProtocolError if the answer cannot
        be read.
        """
        assert self._asked is not None
        key, sent, text = self._asked
        body = reply[PREFIX_BYTES:]
        answer = read_response(key, sent, int.from_bytes(body[:4], "big", signed=True), body)
        self._asked = None
        error = answer.error_code
        if error:
            self._refused(error, getattr(answer, "error_message", None) or f"the mechanism {text}")
        elif key == SASL_HANDSHAKE:
            self._stage, self._mechanism = _Stage.CHOSEN, text
        else:
            self._stage, self._name = _Stage.TOLD, text
            lifetime_ms = int(getattr(answer, "session_lifetime", 0))
            self._ends_s = self._clock() + lifetime_ms / 1000 if lifetime_ms > 0 else None
        if sent != version:
            body = body[:-_LIFETIME_BYTES]
            return len(body).to_bytes(PREFIX_BYTES, "big") + body
        return reply

    def _refused(self, error: int, message: str) -> None:
        # A broker without connections.max.reauth.ms refuses a second authentication with
        # ILLEGAL_SASL_STATE, and the first one stays valid (KafkaApis.handleSaslHandshakeRequest).
        if self._stage is not _Stage.PROVEN or error != ErrorCode.ILLEGAL_SASL_STATE:
            self._stage = _Stage.NEW
            self.failure = f"{message} (error {error})"

    # --- The proof --------------------------------------------------------------------------------

    def proof(self, correlation_id: int) -> bytes:
        """Return a request that a broker answers only for an authenticated client."""
        assert self._stage is _Stage.TOLD
        self._asked = ApiKey.METADATA, self._proof_version, ""
        return write_request(
            ApiKey.METADATA,
            self._proof_version,
            correlation_id,
            _CLIENT_ID,
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def proved(self, reply: bytes) -> bytes:
        """Process the answer to the proof. Return no bytes, because the client does not get it.

        Sets ``failure`` if the client is not authenticated. Raises ProtocolError if the answer
        cannot be read.

        In the middle of an authentication Kafka answers with an error, which has no brokers
        (SaslServerAuthenticator.handleSaslToken). It is also a failure if the principal of the
        client has changed, as in Kafka (ReauthInfo.ensurePrincipalUnchanged).
        """
        assert self.is_proving
        body = reply[PREFIX_BYTES:]
        correlation_id = int.from_bytes(body[:4], "big", signed=True)
        answer = read_response(ApiKey.METADATA, self._proof_version, correlation_id, body)
        self._asked = None
        if not answer.brokers:
            self._stage = _Stage.NEW
            self.failure = f"a request of {self._name} before the end of the authentication"
        elif self.principal not in (ANONYMOUS, self._name):
            self._stage = _Stage.NEW
            self.failure = f"{self.principal} cannot become {self._name}"
        else:
            self._stage, self.principal = _Stage.PROVEN, self._name
        return b""


def _read_request(key: int, version: int, frame: bytes) -> Any:
    what = f"a request of API {key} v{version}"
    begun = checked(lambda: request_of(key, version, frame, _MAX_ELEMENTS), what)
    return read_request(key, version, frame, begun.source.position, _MAX_ELEMENTS)


# --- Names ----------------------------------------------------------------------------------------


def principal_of(mechanism: str, token: bytes) -> str:
    """Return the principal that a client claims in the first token of a mechanism.

    Trust the result only after the broker has accepted the token. Kafka makes the same principal if
    its config has no principal.builder.class. If only the broker can know the name, the result is
    ``Unknown:`` and the mechanism.
    """
    read = _NAMES.get(mechanism)
    try:
        name = None if read is None else read(token.decode())
    # ValueError includes UnicodeDecodeError.
    except (ValueError, LookupError, AttributeError, StopIteration):
        name = None
    return f"{UNKNOWN}:{mechanism}"[:MAX_NAME_CHARS] if not name else name[:MAX_NAME_CHARS]


def _plain_name(token: str) -> str:
    """Return the principal of a PLAIN token (RFC 4616): authorization id, user, password. Kafka
    refuses a token whose authorization id is another user.
    """
    return f"User:{token.split(chr(0))[1]}"


def _scram_name(token: str) -> str:
    """Return the principal of a SCRAM token (RFC 5802): ``n,a=...,n=user,r=nonce,extensions``.

    With the extension ``tokenauth`` the user is the id of a delegation token (KIP-48), and only the
    broker knows the owner of the token. The first attribute ``n`` counts, as in Kafka
    (ScramMessages.ClientFirstMessage). Otherwise a client could name somebody else in a second
    ``n`` among the extensions.
    """
    _, _, *attributes = token.split(",")
    values = [(key, value) for key, _, value in (each.partition("=") for each in attributes)]
    name = next(value for key, value in values if key == "n")
    name = name.replace("=2C", ",").replace("=3D", "=")
    return f"DelegationToken:{name}" if ("tokenauth", "true") in values else f"User:{name}"


def _bearer_name(token: str) -> str:
    """Return the principal of an OAUTHBEARER token (RFC 7628): the subject of its JSON web token.

    The broker checks the web token. Return "" if the web token has no subject.
    """
    fields = dict(each.split("=", 1) for each in token.split("\x01") if "=" in each)
    claims = fields["auth"].split(" ")[1].split(".")[1]
    try:
        subject = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
    except (binascii.Error, TypeError, RecursionError):
        return ""
    return f"User:{subject}" if isinstance(subject, str) else ""


_NAMES: Final[Mapping[str, Callable[[str], str]]] = {
    "PLAIN": _plain_name,
    "SCRAM-SHA-256": _scram_name,
    "SCRAM-SHA-512": _scram_name,
    "OAUTHBEARER": _bearer_name,
}


def no_login() -> None:
    """Return None: clients need not authenticate themselves (``upstream.identity = "ours"``)."""
