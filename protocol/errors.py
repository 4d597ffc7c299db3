"""Invalid bytes from a peer: one exception, with a label for a counter."""

from __future__ import annotations


class ProtocolError(Exception):
    """Bytes are invalid, or ask for an API or a version that is not served.

    If a client has sent them, the server closes the connection, as Kafka does. It has answered and
    changed nothing, and reserved no memory for a length that the bytes announce.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        """A short stable label for a metric, such as ``frame_too_large``, ``truncated``,
        ``not_kafka_tls``.
        """
        self.message = message
        """One sentence for the log. It has numbers and schema names, never bytes of the peer."""

    def __str__(self) -> str:
        return f"{self.message} ({self.reason})"
