"""Finds out why requests to a broker fail: it cannot be reached, or a right is missing.

aiokafka only logs why it cannot reach a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import errors as kafka_errors
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError

_OF_CONNECTIONS: Final = (
    "client_id",
    "request_timeout_ms",
    "ssl_context",
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
)
"""The settings of a client that its connections have too."""

_AUTHORIZATION: Final = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TransactionalIdAuthorizationFailed,
)


async def why_unreachable(options: Mapping[str, Any]) -> str:
    """Try each broker of the URL once more. Return why it fails: the network, TLS, or the
    password. ``options`` are those of a client.
    """
    settings = {name: options[name] for name in _OF_CONNECTIONS if name in options}
    reasons = []
    for server in options["bootstrap_servers"]:
        host, _, port = server.rpartition(":")
        try:
            connection = await create_conn(host.strip("[]"), int(port), **settings)
        except (OSError, KafkaError, TimeoutError, asyncio.IncompleteReadError) as error:
            reasons.append(f"{server}: {_text(error)}")
        else:
            connection.close()
            reasons.append(f"{server}: answers now")
    return "; ".join(reasons)


def missing_right(name: str, error: KafkaError | type[KafkaError]) -> str | None:
    """Return advice if the error is about a missing right, otherwise None. ``name`` is the name of
    the store.
    """
    error_type = error if isinstance(error, type) else type(error)
    if not issubclass(error_type, _AUTHORIZATION):
        return None
    topic = name.rpartition("/")[2]
    return (
        f"{error_type.__name__}: give the user Read, Write, Describe, DescribeConfigs and Create "
        f"for topics that begin with {topic!r}, and Write and Describe for transactional ids that "
        f"begin with '{topic}-'"
    )


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or repr(error)
