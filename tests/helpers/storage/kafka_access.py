"""A broker with authentication and ACLs: listeners with SASL and TLS, and users."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.clients.certificates import make_certificates
from tests.helpers.daemon.daemon import free_port

USER = "store"
PASSWORD = "a secret, with ?&@:/"
STRANGER = "stranger"
"""A user without any right."""
CERTIFIED = "CN=client"
"""The user that the certificate of a client names."""

JAAS = "org.apache.kafka.common.security"


class KafkaAccess:
    """The further listeners of one broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sasl_port = free_port()
        """The port for SASL over TLS."""
        self.tls_port = free_port()
        """The port for TLS with a certificate of the client."""
        self.cut_port = free_port()
        """The port for a proxy. To clients of this port, brokers name ``proxy_port`` as their
        address."""
        self.proxy_port = free_port()
        make_certificates(folder)

    def settings(self, port: int) -> dict[str, str]:
        """Return the settings of a broker, which also has a plain listener on ``port``."""
        served = [
            f"PLAINTEXT://127.0.0.1:{port}",
            f"SASL_SSL://127.0.0.1:{self.sasl_port}",
            f"SSL://127.0.0.1:{self.tls_port}",
        ]
        cut = "CUT://127.0.0.1:{}"
        names = (
            "CONTROLLER:PLAINTEXT",
            "PLAINTEXT:PLAINTEXT",
            "SASL_SSL:SASL_SSL",
            "SSL:SSL",
            "CUT:PLAINTEXT",
        )
        users = f'user_{USER}="{PASSWORD}" user_{STRANGER}="{PASSWORD}"'
        return {
            "listeners": ",".join(
                [*served, cut.format(self.cut_port), f"CONTROLLER://127.0.0.1:{port + 1}"]
            ),
            "advertised.listeners": ",".join([*served, cut.format(self.proxy_port)]),
            "listener.security.protocol.map": ",".join(names),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f"{JAAS}.plain.PlainLoginModule required {users};"
            ),
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": _SCRAM,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _SCRAM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # who comes in by the plain listener
        }


_SCRAM = f"{JAAS}.scram.ScramLoginModule required;"


def make_user(bootstrap: str) -> None:
    """Create ``USER`` with its password for SCRAM."""
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result()


def give_rights(bootstrap: str, topic: str, *users: str) -> None:
    """Give users the rights that docs/operate/kafka-topic.md names, for one store."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    operation = AclOperation
    rights = [
        (ResourceType.TOPIC, topic, ResourcePatternType.PREFIXED, each)
        for each in (
            operation.READ,
            operation.WRITE,
            operation.DESCRIBE,
            operation.DESCRIBE_CONFIGS,
            operation.CREATE,
        )
    ] + [
        (ResourceType.TRANSACTIONAL_ID, f"{topic}-", ResourcePatternType.PREFIXED, each)
        for each in (operation.WRITE, operation.DESCRIBE)
    ]
    bindings = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", each, AclPermissionType.ALLOW)
        for user in users
        for kind, name, pattern, each in rights
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_acls(bindings).values():
        done.result()
