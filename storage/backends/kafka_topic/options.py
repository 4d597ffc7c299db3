"""The settings of aiokafka for a store."""

from __future__ import annotations

from typing import Any, Final

from aiokafka.helpers import create_ssl_context

from groupkeeper.storage.backends.kafka_topic.url import KafkaTopicUrl
from groupkeeper.storage.base import StoreRefused

CLIENT_ID: Final = "groupkeeper-store"
_MIN_TIMEOUT_MS: Final = 1_000


def client_options(url: KafkaTopicUrl, timeout_ms: int) -> dict[str, Any]:
    """Return the settings of a client of aiokafka. Raises StoreRefused if a file for TLS cannot be
    read.
    """
    security = ("" if url.user is None else "SASL_") + ("SSL" if url.has_tls else "PLAINTEXT")
    options: dict[str, Any] = {
        "bootstrap_servers": [*url.servers],
        "client_id": CLIENT_ID,
        "request_timeout_ms": max(timeout_ms, _MIN_TIMEOUT_MS),
        "retry_backoff_ms": 50,
        "security_protocol": security,
    }
    if url.user is not None:
        options |= {
            "sasl_mechanism": url.mechanism,
            "sasl_plain_username": url.user,
            "sasl_plain_password": url.password,
        }
    if url.has_tls:
        try:
            options["ssl_context"] = create_ssl_context(
                cafile=url.files.get("ca_file"),
                certfile=url.files.get("cert_file"),
                keyfile=url.files.get("key_file"),
            )
        except OSError as error:
            raise StoreRefused(f"{url.name}: a file for TLS cannot be read: {error}") from error
    return options
