"""``__consumer_offsets`` of a Kafka cluster, read through aiokafka into files, bytes as they are.

    DIR/partition-00007.jsonl.gz    {"offset": 12, "ts_ms": …, "key": "base64", "value": "base64",
                                     "is_transactional": false}
    DIR/dump.json                   what was read; written last, so a dump that has it is whole

A record's value is null where the broker took something back. The lines are in the order in which
they counted: what a transaction sent stands where it was committed, with the time of that; what was
aborted, or is open still, is left out (``dump.json`` names what is open). Keys and values are not
decoded here: that is done again whenever it is wanted.
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
"""Told how many records were read, and at most how many there are."""


class DumpError(Exception):
    """A topic cannot be read, or a dump not; the message is one line."""


class DumpedPartition(msgspec.Struct, frozen=True):
    """What was read of one partition of the topic."""

    partition: int
    file: str
    records: int
    start_offset: int
    end_offset: int
    whole_until: int = 0
    """Compaction took no record below this offset. 0 in dumps from before this was noted."""
    open: tuple[OpenTransaction, ...] = ()
    """What transactions had sent that were open at the end; it is not among the records."""


class Dump(msgspec.Struct, frozen=True):
    """A whole dump: the content of ``dump.json``."""

    format: str
    version: int
    id: str
    """Made of where and when it was read; imports are told apart by it."""
    server: str
    created_ms: int
    partitions: tuple[DumpedPartition, ...]

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(each.records for each in self.partitions)

    @property
    def open(self) -> list[OpenTransaction]:
        """What was left out because its transactions were open; one for each partition it is in."""
        return [each for partition in self.partitions for each in partition.open]


def dump(
    source: ClusterEndpoint,
    directory: Path,
    created_ms: int,
    progress: Progress = lambda read, of: None,
) -> Dump:
    """Read the topic to where it ends now, and write it into a directory that has no dump yet.

    Raises DumpError. Runs a loop of its own until it is done.
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
    """Read what a dump says of itself. Raises DumpError."""
    try:
        found = msgspec.json.decode((directory / HEADER).read_bytes(), type=Dump)
    except (FileNotFoundError, NotADirectoryError):
        raise DumpError(
            f"{directory} holds no {HEADER}: no dump, or one that was not finished; make it again "
            "in an empty directory"
        ) from None
    except OSError as error:
        raise DumpError(f"{directory / HEADER}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise DumpError(f"{directory / HEADER} is no dump: {error}") from None
    if (found.format, found.version) != (FORMAT, FORMAT_VERSION):
        raise DumpError(f"{directory / HEADER} is a {found.format!r} of version {found.version}")
    return found


def read_partition(path: Path) -> Iterator[RawRecord]:
    """Yield the records of one file, in the order in which they counted. Raises DumpError."""
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
        except ValueError as error:  # a setting that does not go with another
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
            # up to the high watermark: a transaction that is open hides nothing behind it
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
    """The file of one partition in the making; it gets its name when it is whole."""

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
        """Take a batch of aiokafka's, without what lies over the edges; return how far it led."""
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
    """Whether a batch has every record from where the one before it ended to where it does."""
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
    """Return the settings for aiokafka: kafka-python's, but for the files of TLS. DumpError."""
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
