"""The options that the commands of ``groupkeeper consul`` share, and a function to run them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.pipeline.inputs import TLS_FILES, read_known
from groupkeeper.coordinator.cli.stopping import run_stoppable

Result = TypeVar("Result")

AddressOption = Annotated[
    str,
    typer.Option(
        "--consul", "-c", metavar="HOST:PORT", help="The address of an agent of Consul, or its URL."
    ),
]
DEFAULT_ADDRESS: Final = "127.0.0.1:8500"
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--consul-config",
        metavar="FILE",
        help="A file with the token and TLS for the agent, one setting per line: token=TEXT, "
        "ssl.ca.location=FILE, "
        "ssl.certificate.location=FILE, ssl.key.location=FILE.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for an answer."),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


def secured(config: Path | None) -> dict[str, Any]:
    """Return the token and the TLS context as arguments for ConsulClient. Exit with one line if the
    config has an unknown setting, or names a file that cannot be used."""
    properties = read_known(config, ("token", *TLS_FILES))
    tls = None
    if any(name in properties for name in TLS_FILES):
        ca, certificate, key = (properties.get(name) for name in TLS_FILES)
        try:
            tls = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                tls.load_cert_chain(certificate, key)
        except OSError as error:
            fail(f"{config}: {error}", USAGE)
    return {"token": properties.get("token"), "tls": tls}


def run(work: Callable[[], Awaitable[Result]], timeout_s: float | None = None) -> Result:
    """Run the work and return its result. If the timeout passes, or the work fails with an expected
    error, print one line and exit. Ctrl-C and SIGTERM end the command."""
    from groupkeeper.clients.readers.errors import ReaderError
    from groupkeeper.storage.connections.consul_errors import ConsulError

    async def in_time() -> Result:
        async with asyncio.timeout(timeout_s):
            return await work()

    try:
        return run_stoppable(in_time)
    except TimeoutError:
        fail(f"Consul did not answer within {timeout_s:g} s", FAILED)
    except ValueError as error:
        fail(str(error), USAGE)
    except (ReaderError, ConsulError) as error:
        fail(str(error), FAILED)
    except ExceptionGroup as met:
        fail("; ".join(dict.fromkeys(map(str, met.exceptions))), FAILED)
