"""A real Apache Kafka 4.3.1 with one node, from Maven's jars in the cache.

Tests start it beside the daemon. To run tests against Kafka instead of the daemon, see
``CONFORMANCE_KAFKA`` in ``tests.helpers.daemon.servers``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers.clients.ecosystem import JDK, kafka_jars, need, run
from tests.helpers.daemon.servers import Kafka

if TYPE_CHECKING:
    from collections.abc import Mapping

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.segment.bytes=10485760
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=1000
"""


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="secret";'


def with_sasl(port: int, sasl_port: int) -> dict[str, str]:
    """Return settings of a second listener, which requires the user ``admin`` with the password
    ``secret``.
    """
    plain, sasl = f"PLAINTEXT://127.0.0.1:{port}", f"SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    names = ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT")
    return {
        "listeners": f"{plain},{sasl},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"{plain},{sasl}",
        "listener.security.protocol.map": ",".join(names),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }


class RealKafka(Kafka):
    """The broker. Raises ``ecosystem.Unavailable`` if Java or Maven is missing."""

    def __init__(
        self,
        directory: Path,
        topics: Mapping[str, int],
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(directory, topics)
        self.settings = dict(settings or {})
        self.features: dict[str, int] = {}
        """Feature -> its level, for features such as transaction.version without the
        default level.
        """
        self._java = need("java", JDK)

    @property
    def bootstrap(self) -> str:
        """Return HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        jars = kafka_jars()
        properties = self.directory / "server.properties"
        text = PROPERTIES.format(port=self.port, controller=self.port + 1, directory=self.directory)
        more = "".join(f"{name}={value}\n" for name, value in self.settings.items())
        properties.write_text(text + more)  # if a name is set twice, the last value counts
        main = [self._java, "-cp", f"{jars}/*"]
        if not (self.directory / "data").exists():
            tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            features = [f"--feature={name}={level}" for name, level in self.features.items()]
            run([*main, *tool, *features])
        memory = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [main[0], *memory, *main[1:], "kafka.Kafka", str(properties)]
