"""A real Apache Kafka that authenticates its clients, and has ACLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.helpers.clients.certificates import make_certificates
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.daemon import free_port

JAAS = "org.apache.kafka.common.security"
PASSWORDS = {"gate": "of us", "alice": "a,=secret", "bob": "b"}


class GuardedKafka:
    """One broker. Its plain listener is for the test, which has all rights there.

    Clients log in with PLAIN or SCRAM. Every session ends after ``session_ms``, unless its client
    authenticates itself again.
    """

    protocol = "SASL_PLAINTEXT"
    mechanisms = "PLAIN,SCRAM-SHA-512"

    def __init__(self, directory: Path, topics: Mapping[str, int], session_ms: int) -> None:
        self.sasl_port = free_port()
        self.broker = broker = RealKafka(directory, topics)
        name = self.protocol
        at = f"PLAINTEXT://127.0.0.1:{broker.port},{name}://127.0.0.1:{self.sasl_port}"
        listener = f"listener.name.{name.lower()}"
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        broker.settings |= {
            "listeners": f"{at},CONTROLLER://127.0.0.1:{broker.port + 1}",
            "advertised.listeners": at,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            f"{name}:{name}",
            "sasl.enabled.mechanisms": self.mechanisms,
            f"{listener}.plain.sasl.jaas.config": (
                f"{JAAS}.plain.PlainLoginModule required {users};"
            ),
            f"{listener}.scram-sha-512.sasl.jaas.config": (
                f"{JAAS}.scram.ScramLoginModule required;"
            ),
            "connections.max.reauth.ms": str(session_ms),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def start(self) -> None:
        """Start the broker, and create its users."""
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        for user, password in PASSWORDS.items():
            change = UserScramCredentialUpsertion(user, info, password.encode())
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result()

    def allow(self, user: str, topic: str, *operations: AclOperation) -> None:
        """Allow a user these operations on a topic. ``*`` means all topics."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for done in admin.create_acls(bindings).values():
            done.result()

    @property
    def bootstrap(self) -> str:
        """Return HOST:PORT for clients that authenticate themselves."""
        return f"127.0.0.1:{self.sasl_port}"


class SecuredKafka(GuardedKafka):
    """A broker with TLS, and also with OAUTHBEARER. It accepts tokens without a signature, which
    Kafka offers for tests.
    """

    protocol = "SASL_SSL"
    mechanisms = "PLAIN,SCRAM-SHA-512,OAUTHBEARER"

    def __init__(self, directory: Path, topics: Mapping[str, int], session_ms: int) -> None:
        super().__init__(directory, topics, session_ms)
        self.certificates = directory / "certificates"
        self.certificates.mkdir()
        make_certificates(self.certificates)
        self.broker.settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates / "server.pem"),
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
                f"{JAAS}.oauthbearer.OAuthBearerLoginModule required"
                ' unsecuredLoginStringClaim_sub="broker";'
            ),
        }
