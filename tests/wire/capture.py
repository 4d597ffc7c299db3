"""Captures tests/wire/vectors/*.json from real clients against a real Apache Kafka; run by hand.

    CONFORMANCE_KAFKA='…/start.sh' python -m tests.wire.capture [CLIENT …]

The command in CONFORMANCE_KAFKA starts a broker in the foreground, given a port and a directory,
with ``advertised.listeners`` in DIR/server.properties. It is started once to make its files, then
again with the proxy's port advertised, from the jars in KAFKA_LIBS.

Clients: aiokafka, librdkafka, kafka-python; java (the console tools). A file keeps, for each API
and version, the first few frames that differ in size, so that files stay small.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.helpers.clients.members import Hosts, wait_shared, wait_until
from tests.helpers.daemon.daemon import free_port
from tests.helpers.daemon.servers import Kafka
from tests.helpers.wire.raw_client import API_KEYS
from tests.helpers.wire.recording_proxy import Frame, RecordingProxy

VECTORS = Path(__file__).with_name("vectors")
TOPIC = "orders"
NAMES = {key: name for name, key in API_KEYS.items()}
PER_API_VERSION = 4
"""Frames kept of one API, version and direction."""


class AdvertisedKafka(Kafka):
    """A broker that tells clients the address of the proxy before it."""

    advertised: int | None = None

    def command(self) -> list[str]:
        if self.advertised is None:
            return super().command()
        properties = self.directory / "server.properties"
        text = properties.read_text()
        properties.write_text(
            re.sub(r"(?m)^(advertised\.listeners=.*:)\d+$", rf"\g<1>{self.advertised}", text)
        )
        return [
            "java",
            "-Xmx1G",
            "-cp",
            f"{_libs()}/*",
            f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties",
            "kafka.Kafka",
            str(properties),
        ]


def _libs() -> str:
    return os.environ.get("KAFKA_LIBS") or str(Path.home() / ".cache" / "kafka-4.3.1-libs")


def main() -> None:
    wanted = sys.argv[1:] or ["aiokafka", "librdkafka", "kafka-python", "java"]
    with tempfile.TemporaryDirectory() as directory:
        kafka = AdvertisedKafka(Path(directory), {TOPIC: 3})
        kafka.start()
        kafka.terminate()
        port = free_port()
        kafka.advertised = port
        kafka.start()
        proxy = RecordingProxy(port, kafka.port)
        try:
            for client in wanted:
                proxy.take()
                did = _java(port) if client == "java" else _member(client, port)
                _write(client, did, proxy.take())
        finally:
            proxy.stop()
            kafka.stop()


def _member(client: str, port: int) -> str:
    hosts = Hosts(f"127.0.0.1:{port}")
    try:
        host = hosts.shared(client)
        first = host.join("client-a", "captured", [TOPIC])
        wait_shared([first], TOPIC, 3)
        second = host.join("client-b", "captured", [TOPIC])
        wait_shared([first, second], TOPIC, 3)
        offsets = {f"{topic}:{partition}": 7 for topic, partition in first.held}
        assert first.commit(offsets)["ok"]
        assert first.committed() == offsets, (offsets, first.committed(), host.complaint())
        second.leave()
        wait_shared([first], TOPIC, 3)
        static = host.join("client-s", "captured-static", [TOPIC], instance="static-1")
        wait_shared([static], TOPIC, 3)
        assert static.commit({f"{TOPIC}:0": 9})["ok"]
        static.leave()
        if client != "aiokafka":
            members = [
                host.join(f"client-{n}", "captured-sticky", [TOPIC], assignor="cooperative-sticky")
                for n in "xy"
            ]
            wait_shared(members, TOPIC, 3)
            wait_until(lambda: all(m.held for m in members), [host], "both own something")
            for member in members:
                member.leave()
        first.leave()
    finally:
        hosts.end()
    distribution = {"librdkafka": "confluent-kafka"}.get(client, client)
    return (
        f"{client} ({distribution} {version(distribution)}): two members join, sync, heartbeat, "
        "fetch, commit, leave; a static member; cooperative-sticky where it has it"
    )


def _java(port: int) -> str:
    for tool, *arguments in (
        (
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--topic",
            TOPIC,
            "--group",
            "captured-java",
            "--timeout-ms",
            "6000",
            "--from-beginning",
        ),
        (
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--describe",
            "--all-groups",
        ),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list", "--state"),
        (
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--describe",
            "--members",
            "--group",
            "captured-java",
        ),
        (
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--reset-offsets",
            "--to-earliest",
            "--topic",
            TOPIC,
            "--group",
            "captured-java",
            "--execute",
        ),
        ("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "made", "--partitions", "2"),
        ("org.apache.kafka.tools.TopicCommand", "--alter", "--topic", "made", "--partitions", "4"),
        ("org.apache.kafka.tools.TopicCommand", "--describe"),
        ("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", "made"),
    ):
        subprocess.run(
            [
                "java",
                "-cp",
                f"{_libs()}/*",
                tool,
                "--bootstrap-server",
                f"127.0.0.1:{port}",
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=90,
        )
    return (
        "Apache Kafka 4.3.1 command line: console consumer (classic protocol) with a group; "
        "consumer-groups list, describe, reset; topics create, alter, describe, delete"
    )


def _write(client: str, did: str, frames: list[Frame]) -> None:
    kept: list[dict[str, object]] = []
    seen: dict[tuple[int, int, str], set[int]] = {}
    for frame in frames:
        if frame.api_key not in NAMES:
            continue
        sizes = seen.setdefault((frame.api_key, frame.api_version, frame.direction), set())
        if len(frame.data) in sizes or len(sizes) >= PER_API_VERSION:
            continue
        sizes.add(len(frame.data))
        kept.append(
            {
                "api_key": frame.api_key,
                "api_version": frame.api_version,
                "direction": frame.direction,
                "hex": frame.data.hex(),
            }
        )
    VECTORS.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(frame) for frame in kept)
    (VECTORS / f"{client}.json").write_text(
        f'{{"source": {json.dumps(did)}, "frames": [\n{lines}\n]}}\n'
    )
    sys.stdout.write(f"{client}: {len(frames)} frames seen, {len(kept)} kept\n")


if __name__ == "__main__":
    main()
