"""The settings of the clients of a store in topics of Kafka."""

from __future__ import annotations

import pytest

from groupkeeper.storage.backends.kafka_topic.options import client_options
from groupkeeper.storage.backends.kafka_topic.url import parse_url


@pytest.mark.parametrize(
    ("url", "protocol", "user"),
    [
        ("kafka://h:1/t", "PLAINTEXT", None),
        ("kafka://h:1/t?tls=on", "SSL", None),
        ("kafka://me:secret@h:1/t", "SASL_PLAINTEXT", "me"),
        ("kafka://me:secret@h:1/t?tls=on", "SASL_SSL", "me"),
    ],
)
def test_a_user_and_tls_in_the_url_choose_the_protocol(
    url: str, protocol: str, user: str | None
) -> None:
    options = client_options(parse_url(url, {}), 5_000)
    assert options["security_protocol"] == protocol
    assert options.get("sasl_plain_username") == user
    assert ("ssl_context" in options) == ("tls" in url)
