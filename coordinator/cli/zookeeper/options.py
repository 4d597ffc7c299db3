"""The options that the commands of ``groupkeeper zookeeper`` share, and a registry from them.

A registry is the groups that consumers keep in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from groupkeeper.coordinator.cli.failing import USAGE, fail
from groupkeeper.coordinator.cli.pipeline.inputs import TLS_FILES, read_known

if TYPE_CHECKING:
    from groupkeeper.clients.zookeeper.registry import Registry

ServersOption = Annotated[
    str,
    typer.Option(
        "--zookeeper",
        "-z",
        metavar="HOSTS",
        help="ZooKeeper's servers, and the chroot if there is one: host1:2181,host2:2181/chroot.",
    ),
]
DEFAULT_SERVERS: Final = "127.0.0.1:2181"
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--zookeeper-config",
        metavar="FILE",
        help="A file with the login and TLS for the servers, one setting per line: "
        "digest=user:password, "
        "acl=creator, ssl.ca.location=FILE, ssl.certificate.location=FILE, ssl.key.location=FILE, "
        "ssl.key.password=TEXT.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for an answer."),
]
SessionOption = Annotated[
    int,
    typer.Option(
        "--session-timeout-ms",
        metavar="MS",
        min=100,
        help="If this command is killed, its claim ends after this time.",
    ),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
PartitionArgument = Annotated[
    int, typer.Argument(metavar="PARTITION", min=0, help="The number of the partition.")
]
InstanceOption = Annotated[
    str, typer.Option("--instance", metavar="ID", help="The id of the instance.")
]

_KNOWN: Final = (*TLS_FILES, "ssl.key.password", "digest", "acl")


def registry_of(
    servers: str, config: Path | None, timeout_s: float, session_timeout_ms: int = 6_000
) -> Registry:
    """Return the registry, not yet open. Exit with one line if an option is wrong. The caller must
    have a running event loop."""
    from groupkeeper.clients.zookeeper.registry import Registry

    try:
        return Registry(
            servers,
            connect_timeout_ms=int(timeout_s * 1000),
            session_timeout_ms=session_timeout_ms,
            **_secured(read_known(config, _KNOWN), config),
        )
    except ValueError as error:
        fail(str(error), USAGE)


def _secured(properties: Mapping[str, str], config: Path | None) -> dict[str, Any]:
    from groupkeeper.storage.connections.zookeeper_settings import (
        ANYONE,
        CREATOR_ONLY,
        ZooKeeperTls,
    )

    acls = {"open": ANYONE, "creator": CREATOR_ONLY}
    acl = properties.get("acl", "open")
    if acl not in acls:
        fail(f"{config}: acl={acl} is neither open nor creator", USAGE)
    tls = None
    if any(name.startswith("ssl.") for name in properties):
        ca, cert, key = (Path(properties[n]) if n in properties else None for n in TLS_FILES)
        tls = ZooKeeperTls(ca, cert, key, properties.get("ssl.key.password"))
    return {"digest": properties.get("digest"), "access": acls[acl], "tls": tls}
