"""Options that the commands of ``groupkeeper consul`` share, and how they run."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.pipeline.inputs import read_properties

Result = TypeVar("Result")

AddressOption = Annotated[
    str,
    typer.Option("--consul", "-c", metavar="HOST:PORT", help="An agent of Consul, or its URL."),
]
DEFAULT_ADDRESS: Final = "127.0.0.1:8500"
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--consul-config",
        metavar="FILE",
        help="Credentials and TLS for the agent, one per line: token=TEXT, ssl.ca.location=FILE, "
        "ssl.certificate.location=FILE, ssl.key.location=FILE.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for an answer."),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]

_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def secured(config: Path | None) -> dict[str, Any]:
    """Return the token and the TLS context as arguments for ConsulClient. Exit with one line if the
    file has an unknown setting, or if it names an unusable file."""
    properties = read_properties(config)
    for name, value in properties.items():
        if name not in (*_FILES, "token"):
            fail(f"{config}: unknown setting {name}; known are token, {', '.join(_FILES)}", USAGE)
        if name in _FILES and not Path(value).is_file():
            fail(f"{config}: {name}={value}: no such file", USAGE)
    tls = None
    if any(name in properties for name in _FILES):
        ca, certificate, key = (properties.get(name) for name in _FILES)
        try:
            tls = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                tls.load_cert_chain(certificate, key)
        except OSError as error:
            fail(f"{config}: {error}", USAGE)
    return {"token": properties.get("token"), "tls": tls}


def run(work: Callable[[], Awaitable[Result]], timeout_s: float | None = None) -> Result:
    """Run the work until it ends, or until the timeout, Ctrl-C or SIGTERM. An expected failure
    prints one line and exits."""
    from groupkeeper.clients.readers.errors import ReaderError
    from groupkeeper.storage.connections.consul_errors import ConsulError

    stopped: list[int] = []

    async def doing() -> Result:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            stopped.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        async with asyncio.timeout(timeout_s):
            return await work()

    try:
        return asyncio.run(doing())
    except asyncio.CancelledError:
        raise typer.Exit(128 + stopped[0] if stopped else FAILED) from None
    except TimeoutError:
        fail(f"Consul did not answer within {timeout_s:g} s", FAILED)
    except ValueError as error:
        fail(str(error), USAGE)
    except (ReaderError, ConsulError) as error:
        fail(str(error), FAILED)
    except ExceptionGroup as met:
        fail("; ".join(dict.fromkeys(map(str, met.exceptions))), FAILED)
