"""A Kafka-compatible server, over the Kafka protocol: its groups, their offsets, and its logs.

The client is kafka-python, because it reads and writes all values exactly. confluent-kafka appends
a NUL to the metadata of every commit, and cuts metadata that it reads at the first NUL. It also
reads one group at a time, and cannot delete offsets.

This file is long because the connection to a server, the requests and the names of errors belong
together.
"""

from __future__ import annotations

import logging
import socket
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from groupkeeper.pipeline.restore.plan import Committed, Log, Partition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # importlib.resources.read_text
    import kafka.errors
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec
    from kafka.structs import OffsetAndMetadata, TopicPartition

Result = TypeVar("Result")

DEFAULT_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 0.2

GROUPS_A_REQUEST: Final = 200
"""The largest number of groups whose offsets are read with one request."""
PARTITIONS_A_REQUEST: Final = 2000
"""The largest number of partitions in one request that reads log starts or ends, or deletes
offsets."""
COMMIT_BYTES: Final = 400_000
"""The largest number of bytes of one commit. Kafka writes a commit as one batch, of at most 1 MiB
by default."""
RECORD_BYTES: Final = 120
"""The estimated bytes of a partition in a commit, besides its names and metadata."""

IDLE_STATES: Final = frozenset({"Empty", "Dead"})
"""The states in which a group has no members."""

MOVED: Final = "NOT_COORDINATOR"

AGAIN: Final = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        MOVED,
        "REQUEST_TIMED_OUT",
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_LEADER_FOR_PARTITION",  # kafka-python's name for it
        "LEADER_NOT_AVAILABLE",
    }
)
"""Kafka's names of errors after which a request is sent again."""

RETENTION_CONFIGS: Final = frozenset({"retention.ms", "retention.bytes"})
"""Topic configs that a server with records has. A coordinator without records has none of them."""

MEMBERS_ARE_THERE: Final = frozenset(
    {"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "GROUP_SUBSCRIBED_TO_TOPIC", "REBALANCE_IN_PROGRESS"}
)
"""The errors with which a coordinator refuses an administrator because the group has members."""


class ClusterError(Exception):
    """A server does not answer or refuses a request, or the settings for it are wrong. The message
    is one line.
    """


class GroupBusy(ClusterError):
    """The coordinator refused because the group has members."""


class ClusterGroup(NamedTuple):
    """The fields of one group in the server's list of groups."""

    group: str
    state: str
    """"" if an old broker does not send it."""
    type: str

    @property
    def is_idle(self) -> bool:
        """Return True if the state says that the group has no members."""
        return self.state in IDLE_STATES


class ClusterEndpoint(NamedTuple):
    """The address of a server, and the settings for its clients. It can be sent to another process,
    which opens its own clients.
    """

    address: str
    """HOST:PORT, or several of them with commas between."""
    properties: Mapping[str, str] = {}
    """Settings for a server that needs a login, under librdkafka's names."""
    timeout_s: float = DEFAULT_TIMEOUT_S

    def settings(self) -> dict[str, Any]:
        """Return the settings under the names of kafka-python, which aiokafka has too."""
        given = {NAMES[name]: value for name, value in self.properties.items()}
        if "security_protocol" in given:
            given["security_protocol"] = given["security_protocol"].upper()
        return {"bootstrap_servers": self.address.split(","), **given}

    def check(self) -> None:
        """Raise ClusterError if a setting is wrong, or names an unreadable file."""
        for name, value in self.properties.items():
            if name not in NAMES:
                raise self._wrong(f"unknown setting {name}; known are {', '.join(NAMES)}")
            if name.endswith(FILE_SETTINGS):
                _require_file(name, value)
        given = self.settings()
        protocol = given.get("security_protocol", "PLAINTEXT")
        if protocol not in PROTOCOLS:
            raise self._wrong(f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
        mechanism = given.get("sasl_mechanism", "")
        if protocol.startswith("SASL") and mechanism not in MECHANISMS:
            raise self._wrong(f"sasl.mechanism={mechanism} is not one of {', '.join(MECHANISMS)}")

    def _wrong(self, why: str) -> ClusterError:
        return ClusterError(f"the settings for {self.address} are wrong: {why}")

    def open(self, client_id: str) -> Cluster:
        """Return a new connection. Raises ClusterError if no server answers or a setting is bad."""
        return Cluster(self, client_id)


NAMES: Final[Mapping[str, str]] = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
"""Maps librdkafka's name of each known setting to the name of kafka-python."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

FILE_SETTINGS: Final = (".ca.location", ".certificate.location", ".key.location")
"""The endings of the names of settings whose value is the path of a file."""


class Cluster:
    """A connection to one server. Only one thread may use it. Call ``close``, or use ``with``."""

    def __init__(self, endpoint: ClusterEndpoint, client_id: str) -> None:
        self.address = endpoint.address
        self._endpoint = endpoint
        self._client_id = client_id
        self._timeout_s = endpoint.timeout_s
        endpoint.check()
        _knock(endpoint)
        # kafka-python logs each retry; a final failure is raised
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._client = self._connect()

    def _connect(self) -> Any:
        try:
            return KafkaAdminClient(
                client_id=self._client_id,
                bootstrap_timeout_ms=int(self._timeout_s * 1000),
                request_timeout_ms=int(self._timeout_s * 1000),
                **self._endpoint.settings(),
            )
        except (kafka.errors.KafkaError, OSError, ValueError) as error:
            raise ClusterError(
                f"{self.address}: cannot connect ({_text(error)}), but a server listens "
                "there: is it the Kafka port, and are the settings right (--client-config: "
                "security.protocol, sasl.mechanism)?"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    # --- reading ----------------------------------------------------------------------------------

    def groups(self) -> dict[str, ClusterGroup]:
        """Return every group of the cluster, by its id."""
        listed = self._ask("list groups", lambda: self._client.list_groups())
        return {
            each["group_id"]: ClusterGroup(
                each["group_id"], each.get("group_state") or "", each.get("group_type") or ""
            )
            for each in listed
        }

    def members(self, group: str) -> list[str]:
        """Return a text for each member of a group, such as ``billing-1 at /10.0.0.7``."""
        described = self._ask(
            f"describe group {group!r}", lambda: self._client.describe_groups([group])
        )
        members = described.get(group, {}).get("members", [])
        return sorted(f"{each['client_id']} at {each['client_host']}" for each in members)

    def owners(self, group: str) -> dict[Partition, str]:
        """Map each assigned partition of a group to the member that has it, as text (see
        ``members``). Members with an unknown assignment are left out.
        """
        described = self._ask(
            f"describe group {group!r}", lambda: self._client.describe_groups([group])
        )
        found = {}
        for member in described.get(group, {}).get("members", []):
            assignment = member["member_assignment"]
            topics = assignment["assigned_partitions"] if isinstance(assignment, dict) else ()
            for topic in topics:
                for number in topic["partitions"]:
                    owner = f"{member['client_id']} at {member['client_host']}"
                    found[Partition(topic["topic"], number)] = owner
        return found

    def offsets(self, groups: Sequence[str]) -> dict[str, dict[Partition, Committed]]:
        """Return the committed offsets of each of these groups. A group without offsets has an
        empty entry.
        """
        found: dict[str, dict[Partition, Committed]] = {group: {} for group in groups}
        for some in _slices(list(groups), GROUPS_A_REQUEST):
            answer = self._ask("fetch offsets", partial(self._fetch, some))
            for group, offsets in answer.items():
                found[group] = {
                    Partition(*partition): Committed(
                        value.offset,
                        -1 if value.leader_epoch is None else value.leader_epoch,
                        value.metadata or "",
                    )
                    for partition, value in offsets.items()
                }
        return found

    def _fetch(self, groups: list[str]) -> dict[str, dict[Any, Any]]:
        found: dict[str, dict[Any, Any]] = self._client.list_group_offsets(groups)
        return found

    def existing(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return the partitions that exist at the server."""
        topics = sorted({partition.topic for partition in partitions})
        if not topics:
            return set()
        described = self._ask("describe topics", lambda: self._client.describe_topics(topics))
        return {
            Partition(topic["name"], partition["partition_index"])
            for topic in described
            if topic["error_code"] == 0
            for partition in topic["partitions"]
        }.intersection(partitions)

    def logs(self, partitions: Collection[Partition]) -> dict[Partition, Log]:
        """Return the log start and end of each partition that exists. Both are None if the server
        keeps no records.
        """
        there = self.existing(partitions)
        if not self.keeps_records({partition.topic for partition in there}):
            return dict.fromkeys(there, Log())
        found: dict[Partition, Log] = {}
        for some in _slices(sorted(there), PARTITIONS_A_REQUEST):
            keys = [TopicPartition(*each) for each in some]
            starts = self._log_offsets(keys, OffsetSpec.EARLIEST)
            ends = self._log_offsets(keys, OffsetSpec.LATEST)
            for each, key in zip(some, keys, strict=True):
                found[each] = Log(starts[key].offset, ends[key].offset)
        return found

    def ends(self) -> dict[Partition, int]:
        """Return the log end of every partition that has a leader. Internal topics are left out.

        Raises ClusterError for a server that keeps no records.
        """
        described = self._ask("describe topics", lambda: self._client.describe_topics())
        topics = [each for each in described if not each["error_code"] and not each["is_internal"]]
        if not self.keeps_records({each["name"] for each in topics}):
            raise ClusterError(f"{self.address}: keeps no records; name the brokers that hold them")
        there = sorted(
            Partition(topic["name"], partition["partition_index"])
            for topic in topics
            for partition in topic["partitions"]
            if partition["leader_id"] >= 0
        )
        found: dict[Partition, int] = {}
        for some in _slices(there, PARTITIONS_A_REQUEST):
            keys = [TopicPartition(*each) for each in some]
            ends = self._log_offsets(keys, OffsetSpec.LATEST)
            found |= {each: ends[key].offset for each, key in zip(some, keys, strict=True)}
        return found

    def keeps_records(self, topics: Collection[str]) -> bool:
        """Return True if this server has the records of its topics, not only offsets.

        The configs of one of the topics decide: a coordinator without records has no retention
        setting. If the configs cannot be read, the result is True. If this is wrong, offsets are
        moved to the start or the end of a log that does not exist, and a person can see this in the
        plan. A wrong False could not be seen there, and a consumer would start at a deleted record.
        """
        if not topics:
            return True
        topic = min(topics)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        try:
            answer = self._ask(
                f"describe the configs of {topic!r}",
                lambda: self._client.describe_configs([resource], config_filter="all"),
            )
        except ClusterError:
            return True
        return bool(RETENTION_CONFIGS & answer.get("topic", {}).get(topic, {}).keys())

    def _log_offsets(self, keys: Iterable[TopicPartition], which: OffsetSpec) -> dict[Any, Any]:
        wanted = dict.fromkeys(keys, which)
        found: dict[Any, Any] = self._ask(
            "list offsets", lambda: self._client.list_partition_offsets(wanted)
        )
        return found

    # --- writing ----------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """Commit offsets as an administrator, in requests of at most about COMMIT_BYTES.

        Raises GroupBusy if the group has members, and ClusterError for every other error. After an
        error some offsets may be written, so the caller must read them back.
        """
        for some in _batches(group, sorted(offsets.items())):
            self._write(group, partial(self._commit, group, some))

    def delete(self, group: str, partitions: Collection[Partition]) -> None:
        """Delete committed offsets. Raises the same errors as ``commit``."""
        keys = [TopicPartition(*each) for each in sorted(partitions)]
        for some in _slices(keys, PARTITIONS_A_REQUEST):
            self._write(group, partial(self._delete, group, some))

    def _commit(self, group: str, offsets: Iterable[tuple[Partition, Committed]]) -> dict[str, str]:
        answered = self._client.alter_group_offsets(
            group,
            {
                TopicPartition(*partition): OffsetAndMetadata(
                    value.offset, value.metadata, value.leader_epoch
                )
                for partition, value in offsets
            },
        )
        return _refused(answered)

    def _delete(self, group: str, keys: Collection[TopicPartition]) -> dict[str, str]:
        return _refused(self._client.delete_group_offsets(group, keys))

    def _write(self, group: str, write: Callable[[], dict[str, str]]) -> None:
        """Send a commit or a deletion. If all errors are temporary, retry until the timeout.

        Raises GroupBusy or ClusterError (see ``commit``).
        """
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            refused = self._ask(f"commit for group {group!r}", write)
            errors = set(refused.values())
            if not errors:
                return
            if errors & MEMBERS_ARE_THERE:
                raise GroupBusy(f"{self.address}: group {group!r} has members")
            if not errors <= AGAIN or time.monotonic() + RETRY_S > give_up_s:
                partition, error = min(refused.items())
                raise ClusterError(
                    f"{self.address}: group {group!r}: {partition}: {error}"
                    + (f", and {len(refused) - 1} more" if len(refused) > 1 else "")
                )
            self._wait(errors)

    def _ask(self, what: str, ask: Callable[[], Result]) -> Result:
        """Send a request and return the answer. If an error is temporary, retry until the timeout.

        ``what`` is the text for messages. Raises GroupBusy or ClusterError (see ``commit``).
        """
        give_up_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except (kafka.errors.KafkaError, OSError) as failed:
                name, text = _name(failed), _text(failed)
            if name in MEMBERS_ARE_THERE:
                raise GroupBusy(f"{self.address}: {what}: the group has members")
            if name not in AGAIN or time.monotonic() + RETRY_S > give_up_s:
                raise ClusterError(f"{self.address}: cannot {what}: {text}")
            self._wait({name})

    def _wait(self, errors: Collection[str]) -> None:
        time.sleep(RETRY_S)
        if MOVED in errors:
            # kafka-python never looks for another coordinator, so a new client must do it
            self._client.close()
            self._client = self._connect()


def _require_file(name: str, path: str) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise ClusterError(f"{name}={path}: {error.strerror or error}") from None


def _knock(endpoint: ClusterEndpoint) -> None:
    """Raise ClusterError if no address of the endpoint accepts a connection.

    Without this check, kafka-python would retry until its timeout, and leave its sockets open.
    """
    problem = ""
    for address in endpoint.address.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), _port(port)), endpoint.timeout_s):
                return
        except ValueError:
            problem = f"{address!r} is not HOST:PORT"
        except OSError as error:
            problem = error.strerror or str(error)
    raise ClusterError(
        f"{endpoint.address}: cannot connect ({problem}); is the server running there?"
    )


def _port(text: str) -> int:
    if not 0 < int(text) < 1 << 16:
        raise ValueError(text)
    return int(text)


def _batches(
    group: str, offsets: Sequence[tuple[Partition, Committed]]
) -> Iterator[list[tuple[Partition, Committed]]]:
    """Divide a commit into parts of at most about COMMIT_BYTES each."""
    batch: list[tuple[Partition, Committed]] = []
    left = COMMIT_BYTES
    for partition, value in offsets:
        texts = (group, partition.topic, value.metadata)
        size = RECORD_BYTES + sum(len(text.encode()) for text in texts)
        if batch and size > left:
            yield batch
            batch, left = [], COMMIT_BYTES
        batch.append((partition, value))
        left -= size
    if batch:
        yield batch


Item = TypeVar("Item")


def _slices(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    return (list(items[at : at + size]) for at in range(0, len(items), size))


# --- errors by Kafka's names ----------------------------------------------------------------------


def _refused(answered: Mapping[Any, Any]) -> dict[str, str]:
    return {
        f"{partition.topic}-{partition.partition}": _error_name(error)
        for partition, error in answered.items()
        if error is not kafka.errors.NoError
    }


def _error_name(error: Any) -> str:
    """Return Kafka's name of an error class of kafka-python."""
    return str(getattr(error, "message", "")) or getattr(error, "__name__", "") or str(error)


def _name(error: BaseException) -> str:
    return _error_name(type(error)) if isinstance(error, kafka.errors.KafkaError) else ""


def _text(error: BaseException) -> str:
    return _name(error) or str(error) or type(error).__name__
