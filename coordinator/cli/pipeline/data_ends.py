"""``groupkeeper pipeline sample-ends`` asks the brokers for the end offsets of all partitions.

With these samples, reports show the lag to the true end of each partition. The command needs
Kafka's client and no Spark. ``pipeline run --data`` takes one sample too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from groupkeeper.coordinator.cli.failing import BUSY, FAILED, USAGE, fail
from groupkeeper.coordinator.cli.pipeline.inputs import now_ms, read_properties
from groupkeeper.coordinator.cli.pipeline.options import (
    LOG_DIR,
    ClientConfigOption,
    TimeoutOption,
)

if TYPE_CHECKING:
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
    from groupkeeper.storage.event_log.data_ends import DataEndsLog

FOLDER: Final = "data-ends"
"""The folder of the samples, in the folder of the log. The daemon does not read it."""

CLIENT_ID: Final = "groupkeeper-lag"


def sample_ends_command(
    data: Annotated[
        str,
        typer.Option(
            "--data", metavar="HOST:PORT", help="A broker of the cluster that stores the messages."
        ),
    ],
    log_dir: Annotated[str, LOG_DIR] = "groupkeeper-log",
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            metavar="SECONDS",
            min=1,
            help="Ask again after this time, until Ctrl-C. Without this option, ask once.",
        ),
    ] = None,
    keep_days: Annotated[
        int,
        typer.Option(
            "--keep-days",
            metavar="N",
            min=1,
            help="Delete samples after N days. The tables keep the samples that they have read.",
        ),
    ] = 8,
    client_config: ClientConfigOption = None,
    timeout: TimeoutOption = 30,
) -> None:
    """Ask the brokers that store the messages for the end of every partition.

    Writes the ends that have changed (samples) into --log-dir. The next `pipeline run` reads them.
    Lag in the tables is then the distance to the true end of a partition. Exits 1 if the brokers do
    not answer. With --every, the command reports this, and asks again after that time.
    """
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint, ClusterError

    source = ClusterEndpoint(data, read_properties(client_config), timeout)
    with _opened(log_dir, keep_days) as log:
        while True:
            began = time.monotonic()
            try:
                _sample(source, log)
            except ClusterError as error:
                if every is None:
                    fail(str(error), FAILED)
                typer.echo(f"groupkeeper: {error}", err=True)
            if every is None:
                return
            time.sleep(max(0.0, every - (time.monotonic() - began)))


def sampled(data: str | None, log_dir: str, client_config: Path | None) -> bool:
    """Take one sample if ``data`` names a broker. If the brokers do not answer, print why and
    return False. Otherwise return True.
    """
    if data is None:
        return True
    from groupkeeper.pipeline.restore.cluster import ClusterEndpoint, ClusterError

    with _opened(log_dir) as log:
        try:
            _sample(ClusterEndpoint(data, read_properties(client_config)), log)
        except ClusterError as error:
            typer.echo(f"groupkeeper: {error}. Lag is as of the last sample", err=True)
            return False
    return True


@contextmanager
def _opened(log_dir: str, keep_days: int | None = None) -> Iterator[DataEndsLog]:
    """Open the log of the samples. Exit if another process writes it, or if its folder cannot be
    written.
    """
    from groupkeeper.pipeline.tables.lake_lock import TablesBusy, local_folder, only_writer
    from groupkeeper.storage.event_log.data_ends import KEEP_DAYS, DataEndsLog

    folder = local_folder(log_dir)
    if folder is None:
        fail(f"{log_dir}: samples are written to a folder of this machine", USAGE)
    if not folder.is_dir():
        fail(f"{log_dir} does not exist", FAILED)
    place = folder / FOLDER
    try:
        with only_writer(str(place)):
            yield DataEndsLog(place, keep_days or KEEP_DAYS)
    except TablesBusy as error:
        fail(str(error), BUSY)
    except OSError as error:
        fail(f"{place}: samples cannot be written there: {error.strerror or error}", FAILED)


def _sample(source: ClusterEndpoint, log: DataEndsLog) -> None:
    """Ask the brokers for all ends, and write those that changed. Raises ClusterError if a broker
    does not answer.
    """
    with source.open(CLIENT_ID) as cluster:
        ends = cluster.ends()
    log.add({(key.topic, key.partition): end for key, end in ends.items()}, now_ms())
