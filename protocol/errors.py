"""What is wrong with bytes from a peer: one exception, with a label for a counter."""

from __future__ import annotations


class ProtocolError(Exception):
    """Bytes that cannot be what a client meant: the connection that sent them is closed, as Kafka
    does.

    Nothing has been reserved, changed or answered when it is raised.
    """

    def __init__(self, reason: str, message: str) -> None:
        """Keep the label and the sentence."""
        super().__init__(reason, message)
        self.reason = reason
        """A short stable label, safe for a metric: ``frame_too_large``, ``truncated``,
        ``not_kafka_tls``...
        """
        self.message = message
        """One sentence for the log; holds numbers and schema names, never bytes of the peer."""

    def __str__(self) -> str:
        """Read as the sentence, with the label behind it."""
        return f"{self.message} ({self.reason})"
