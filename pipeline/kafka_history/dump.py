"""Copies ``__consumer_offsets`` of a Kafka cluster into files, with unchanged bytes.

    DIR/partition-00007.jsonl.gz    {"offset": 12, "ts_ms": …, "key": "base64", "value": "base64",
                                     "is_transactional": false}
    DIR/dump.json                   a summary; written last, so a dump with this file is complete

A record with the value null is a deletion. The lines are in the order in which the records took
effect. So the records of a transaction are at the place of its commit, with the time of the commit.
Aborted and open transactions are left out; ``dump.json`` names the open ones. Keys and values are
not decoded here, so a later version can decode a dump again.
"""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context
from aiokafka.record.control_record import ControlRecord

from groupkeeper.pipeline.kafka_history.fetch import FetchStalledError, fetch_batches
from groupkeeper.pipeline.kafka_history.transactions import OpenTransaction, RawRecord, Transactions
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint

TOPIC: Final = "__consumer_offsets"
FORMAT: Final = "groupkeeper-offsets-dump"
FORMAT_VERSION: Final = 1
HEADER: Final = "dump.json"
CLIENT_ID: Final = "groupkeeper-dump"

COMPRESSION_LEVEL: Final = 6

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of offsets read so far, and their total."""


class DumpError(Exception):
    """A topic or a dump cannot be read. The message is one line."""


class DumpedPartition(msgspec.Struct, frozen=True):
    """The summary of one partition of the topic, in ``dump.json``."""

    partition: int
    file: str
    records: int
    start_offset: int
    end_offset: int
    whole_until: int = 0
    """Below this offset, compaction has removed no record. It is 0 for old dumps, which do not have
    this field."""
    open: tuple[OpenTransaction, ...] = ()
    """Transactions that were open at the end of the read. Their records are not in the dump."""


class Dump(msgspec.Struct, frozen=True):
    """A whole dump: the content of ``dump.json``."""

    format: str
    version: int
    id: str
    """The id of the dump, made from the time at which the topic was read. An import uses it as the
    id of its batch."""
    server: str
    created_ms: int
    partitions: tuple[DumpedPartition, ...]

    @property
    def records(self) -> int:
        """Return how many records the dump has."""
        return sum(each.records for each in self.partitions)

    @property
    def open(self) -> list[OpenTransaction]:
        """Return the transactions that were open, and so are not in the dump. A transaction with
        records in several partitions has an entry for each of them.
        """
        return [each for partition in self.partitions for each in partition.open]


def dump(
    source: ClusterEndpoint,
    directory: Path,
    created_ms: int,
    progress: Progress = lambda read, of: None,
) -> Dump:
    """Read the topic up to its current end, and write it into a directory that has no dump yet.

    Raises DumpError if the topic cannot be read, or the directory cannot be used. Runs its own
    event loop, and returns when the dump is complete.
    """
    if (directory / HEADER).exists():
        raise DumpError(f"{directory} already holds a dump: name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DumpError(
            f"{directory} cannot be a directory for the dump: {error.strerror or error}"
        ) from None
    partitions = asyncio.run(_dump(source, directory, progress))
    done = Dump(
        FORMAT, FORMAT_VERSION, f"import-{created_ms}", source.address, created_ms, partitions
    )
    _write_whole(directory / HEADER, msgspec.json.format(msgspec.json.encode(done), indent=1))
    return done


def open_dump(directory: Path) -> Dump:
    """Read ``dump.json``. Raises DumpError if the directory has no complete dump, or a dump of
    another format.
    """
    try:
        found = msgspec.json.decode((directory / HEADER).read_bytes(), type=Dump)
    except (FileNotFoundError, NotADirectoryError):
        raise DumpError(
            f"{directory} has no {HEADER}: it is no dump, or the dump was interrupted. Make it "
            "again in an empty directory"
        ) from None
    except OSError as error:
        raise DumpError(f"{directory / HEADER}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise DumpError(f"{directory / HEADER} is no dump: {error}") from None
    if (found.format, found.version) != (FORMAT, FORMAT_VERSION):
        raise DumpError(f"{directory / HEADER} is a {found.format!r} of version {found.version}")
    return found


def read_partition(path: Path) -> Iterator[RawRecord]:
    """Yield the records of one file, in the order in which they took effect. Raises DumpError if
    the file cannot be read.
    """
    decoder = msgspec.json.Decoder(RawRecord)
    try:
        with gzip.open(path) as lines:
            for line in lines:
                yield decoder.decode(line)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise DumpError(f"{path} cannot be read: {error}") from None


# --- reading --------------------------------------------------------------------------------------


async def _dump(
    source: ClusterEndpoint, directory: Path, progress: Progress
) -> tuple[DumpedPartition, ...]:
    options = _settings(source)
    async with AsyncExitStack() as stack:
        try:
            client = AIOKafkaClient(**options)
        except ValueError as error:  # one setting conflicts with another
            raise DumpError(f"{source.address}: cannot connect: {error}") from None
        stack.push_async_callback(client.close)
        consumer = AIOKafkaConsumer(enable_auto_commit=False, **options)
        stack.push_async_callback(consumer.stop)
        admin = AIOKafkaAdminClient(**options)
        stack.push_async_callback(admin.close)
        try:
            await client.bootstrap()
            await admin.start()
            (topic,) = await admin.describe_topics([TOPIC])
            numbers = sorted(each["partition"] for each in topic["partitions"])
            if not numbers:
                raise DumpError(
                    f"{source.address}: no {TOPIC} there: no group has ever committed to it"
                )
            await client.set_topics([TOPIC])
            await consumer.start()
            assigned = [TopicPartition(TOPIC, number) for number in numbers]
            starts = await consumer.beginning_offsets(assigned)
            # up to the high watermark, so an open transaction hides no record after it
            ends = await consumer.end_offsets(assigned)
            edges = {each.partition: (starts[each], ends[each]) for each in assigned}
            return await _copy(client, source.timeout_s, directory, edges, progress)
        except (KafkaError, OSError, FetchStalledError) as error:
            raise DumpError(f"{source.address}: cannot read {TOPIC}: {error}") from None


async def _copy(
    client: AIOKafkaClient,
    stalled_s: float,
    directory: Path,
    edges: Mapping[int, tuple[int, int]],
    progress: Progress,
) -> tuple[DumpedPartition, ...]:
    starts = {number: start for number, (start, _) in edges.items()}
    ends = {number: end for number, (_, end) in edges.items()}
    total = sum(ends.values()) - sum(starts.values())
    left = total
    with ExitStack() as files:
        writers = {each: _Writer(directory, each, edges[each], files) for each in edges}
        async for batches in fetch_batches(client, TOPIC, starts, ends, stalled_s):
            left -= sum(writers[number].add(batch) for number, batch in batches)
            progress(total - left, total)
        return tuple(writers[number].finish() for number in edges)


class _Writer:
    """Writes the file of one partition. The file gets its name when it is complete."""

    def __init__(
        self, directory: Path, partition: int, edges: tuple[int, int], files: ExitStack
    ) -> None:
        self._partition = partition
        self._start, self._end = edges
        self._position = self._start
        self._whole_until = 0
        self._path = directory / f"partition-{partition:05}.jsonl.gz"
        self._scratch = self._path.with_suffix(".part")
        file = gzip.GzipFile(self._scratch, "wb", compresslevel=COMPRESSION_LEVEL)
        self._file = files.enter_context(file)
        self._encoder = msgspec.json.Encoder()
        self._records = 0
        self._transactions = Transactions()

    def add(self, batch: Any) -> int:
        """Process the records of a batch that are between the start and the end of the dump. Write
        all records that take effect with this batch.

        Return the number of offsets by which the position has advanced.
        """
        found = list(batch)
        records = [
            RawRecord(record.offset, record.timestamp, record.key or b"", record.value)
            for record in found
            if self._start <= record.offset < self._end
        ]
        if batch.is_control_batch:
            for record in records:
                marker = ControlRecord.parse(record.key).type_
                ended = self._transactions.ended(batch.producer_id, marker, record.ts_ms)
                self._write(ended)
        elif batch.is_transactional:
            for record in records:
                self._transactions.sent(batch.producer_id, record)
        else:
            self._write(self._transactions.record(record) for record in records)
        before, self._position = self._position, min(batch.next_offset, self._end)
        if self._whole_until == before and _is_whole(found, before, batch.next_offset):
            self._whole_until = self._position
        return self._position - before

    def _write(self, records: Iterable[RawRecord]) -> None:
        lines = [self._encoder.encode(record) for record in records]
        if lines:
            self._file.write(b"\n".join(lines) + b"\n")
            self._records += len(lines)

    def finish(self) -> DumpedPartition:
        self._file.close()
        _sync(self._scratch)
        self._scratch.rename(self._path)
        return DumpedPartition(
            self._partition,
            self._path.name,
            self._records,
            self._start,
            self._end,
            self._whole_until,
            self._transactions.open(),
        )


def _is_whole(batch: Sequence[Any], position: int, next_offset: int) -> bool:
    """Return True if compaction has removed no record between ``position``, the end of the previous
    batch, and ``next_offset``, the end of this batch.
    """
    return (
        bool(batch) and batch[0].offset <= position and len(batch) == next_offset - batch[0].offset
    )


def _write_whole(path: Path, data: bytes) -> None:
    scratch = path.with_suffix(".part")
    scratch.write_bytes(data)
    _sync(scratch)
    scratch.rename(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _settings(source: ClusterEndpoint) -> dict[str, Any]:
    """Return the settings for aiokafka. They are the settings for kafka-python, but with an SSL
    context in place of the names of the files for TLS.

    Raises DumpError if one of these files cannot be read.
    """
    settings = source.settings()
    found = {name: value for name, value in settings.items() if not name.startswith("ssl_")}
    found |= {"client_id": CLIENT_ID, "request_timeout_ms": int(source.timeout_s * 1000)}
    if str(found.get("security_protocol", "")).endswith("SSL"):
        try:
            found["ssl_context"] = create_ssl_context(
                cafile=settings.get("ssl_cafile"),
                certfile=settings.get("ssl_certfile"),
                keyfile=settings.get("ssl_keyfile"),
                password=settings.get("ssl_password"),
            )
        except OSError as error:
            files = {n: v for n, v in source.properties.items() if n.endswith(".location")}
            named = ", ".join(f"{name}={value}" for name, value in files.items())
            raise DumpError(f"{named}: cannot be read: {error.strerror or error}") from None
    return found
