"""Java's KafkaConsumer with the new protocol (KIP-848), and Admin on its groups."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.test_consumer_protocol import SETTINGS
from tests.helpers.clients.ecosystem import JDK, Unavailable, kafka_jars, need
from tests.helpers.daemon.servers import Groupkeeper

pytestmark = [pytest.mark.clients, pytest.mark.java]

PROGRAM = Path(__file__).parent / "kafka/ConsumerProtocol.java"


def test_consumers_share_commit_and_follow_a_pattern(tmp_path: Path) -> None:
    try:
        command = [need("java", JDK), "-cp", f"{kafka_jars()}/*", str(PROGRAM)]
    except Unavailable as lack:
        pytest.skip(str(lack))
    server = Groupkeeper(tmp_path / "server", topics={"orders": 12}, settings=SETTINGS)
    server.start()
    try:
        done = subprocess.run(
            [*command, f"127.0.0.1:{server.port}"], capture_output=True, text=True, check=False
        )
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "alone",
        "shared",
        "described",
        "handed over",
        "committed",
        "pattern",
        "new topic",
    ]
