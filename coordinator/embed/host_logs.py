"""Our log lines in a host's process."""

from __future__ import annotations

import structlog


def log_as_the_host_does() -> None:
    """Send our log lines through ``logging``, unless the host has configured structlog.

    By default structlog prints to standard output, which belongs to the host.
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
