"""The daemon's log: structlog over the standard library, one line per event, on standard error.

Modules log with ``structlog.stdlib.get_logger()``. Libraries log sentences through ``logging``:
their lines have the event ``library_message`` and the sentence in ``message``.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

    from groupkeeper.coordinator.daemon.config import LoggingSettings

LIBRARY_MESSAGE: Final = "library_message"


def configure_logging(settings: LoggingSettings) -> None:
    """Write all log lines to standard error in the configured format. Replaces an earlier
    set-up.
    """
    console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if console:
        ending.append(
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), timestamp_key="time")
        )
    else:
        ending += [
            structlog.processors.format_exc_info,
            _readable_order,
            structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _named],
            processors=ending,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_log_level(settings)
    # below WARNING uvicorn would log every scrape
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # kazoo logs each attempt to connect, and on level DEBUG the password. The store logs outages.
    logging.getLogger("groupkeeper.kazoo").setLevel(logging.ERROR)
    # httpx2 logs each request to Consul: two lines a second even without clients
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def set_log_level(settings: LoggingSettings) -> None:
    """Change only the log level, as SIGHUP does in a running daemon."""
    logging.getLogger().setLevel(settings.level.upper())


def _named(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {**event, "event": LIBRARY_MESSAGE, "message": event["event"]}


def _readable_order(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    first = {name: event.pop(name) for name in ("time", "level", "event") if name in event}
    return {**first, **event}
