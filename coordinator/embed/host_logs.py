"""What a host's log shows of us: our lines go where its own do."""

from __future__ import annotations

import structlog


def log_as_the_host_does() -> None:
    """Send our lines through ``logging``, unless the host has set structlog up itself: left alone
    it prints to standard output, which is the host's.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
