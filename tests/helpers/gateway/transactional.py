"""Requests of transactions and groups to one of two servers: Kafka, or a gateway in front of it.

Each method returns what both servers must answer equally. It does not return producer ids and
epochs, because these differ.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final

from tests.helpers.wire.raw_client import RawClient

LIMIT_S: Final = 20
RETRIABLE: Final = frozenset({14, 15, 16, 51})
"""Loading, not available, not the coordinator, and an older transaction that is ending: clients
send these requests again."""
UNSTABLE: Final = 88
GROUP, TRANSACTION = 0, 1
ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})

Offsets = dict[tuple[str, int], int]


class Producer:
    """The state of a transactional producer. It may have been fenced."""

    def __init__(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch

    @property
    def values(self) -> dict[str, Any]:
        """Return the fields that identify the producer in each request."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


class Side:
    """One of the two servers that are compared."""

    def __init__(self, name: str, port: int) -> None:
        """``name`` is the prefix of its transactional ids. Groups have the same ids on both
        servers.
        """
        self.name = name
        self._node = RawClient(port)
        self._links: dict[tuple[str, int], RawClient] = {}

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._node, *self._links.values()):
            each.close()

    # --- transactions -----------------------------------------------------------------------------

    def producer(self, name: str, version: int) -> Producer:
        """Return a producer of this name. Earlier producers of the name are fenced."""
        transactional_id = f"{self.name}-{name}"
        answer = self._of_transaction(
            transactional_id,
            "init_producer_id",
            5 if version >= 5 else 4,
            transactional_id=transactional_id,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert not answer["error_code"], answer
        return Producer(transactional_id, answer["producer_id"], answer["producer_epoch"])

    def add_offsets(self, producer: Producer, group: str, version: int) -> int:
        """Add the offsets of a group to the transaction. Return the error."""
        answer = self._of_transaction(
            producer.transactional_id,
            "add_offsets_to_txn",
            min(version, 3),
            group_id=group,
            **producer.values,
        )
        return int(answer["error_code"])

    def end(self, producer: Producer, version: int, *, commit: bool) -> int:
        """End the transaction, and wait until all its markers are written. Return the error."""
        answer = self._of_transaction(
            producer.transactional_id,
            "end_txn",
            5 if version >= 5 else 3,
            committed=commit,
            **producer.values,
        )
        if not answer["error_code"]:
            if version >= 5:  # the epoch is another one in each transaction
                producer.producer_id = answer["producer_id"]
                producer.epoch = answer["producer_epoch"]
            self._until_ended(producer.transactional_id)
        return int(answer["error_code"])

    def commit_in_transaction(
        self, producer: Producer, group: str, version: int, offsets: Offsets, **others: Any
    ) -> list[tuple[str, int, int]]:
        """Send a TxnOffsetCommit. Return the error of each partition."""
        nobody = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        answer = self._of_group(
            group,
            "txn_offset_commit",
            version,
            **{"group_id": group, "topics": _rows(offsets), **nobody, **producer.values, **others},
        )
        return _errors(answer)

    # --- groups -----------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Offsets) -> list[tuple[str, int, int]]:
        """Commit without a transaction. Return the error of each partition."""
        answer = self._of_group(
            group,
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=_rows(offsets),
        )
        return _errors(answer)

    def offsets(
        self, group: str, topic: str, partitions: int, *, stable: bool
    ) -> list[tuple[int, int, int, str]]:
        """Return error, offset, epoch and metadata of each partition of a topic."""
        topics = [{"name": topic, "partition_indexes": [*range(partitions)]}]
        answer = self._of_group(
            group,
            "offset_fetch",
            8,
            groups=[{"group_id": group, "topics": topics}],
            require_stable=stable,
        )
        (found,) = answer["groups"]
        rows = [row for each in found["topics"] for row in each["partitions"]]
        return [
            (
                row["error_code"],
                row["committed_offset"],
                row["committed_leader_epoch"],
                row["metadata"],
            )
            for row in sorted(rows, key=lambda row: row["partition_index"])
        ]

    def delete_offsets(
        self, group: str, offsets: Offsets
    ) -> tuple[int, list[tuple[str, int, int]]]:
        """Delete committed offsets. Return the errors."""
        answer = self._of_group(
            group, "offset_delete", 0, group_id=group, topics=_rows(offsets, of_commit=False)
        )
        return int(answer["error_code"]), _errors(answer)

    def delete_group(self, group: str) -> int:
        """Delete a group. Return the error."""
        answer = self._of_group(group, "delete_groups", 2, groups_names=[group])
        (result,) = answer["results"]
        return int(result["error_code"])

    def listed(self, group: str) -> list[tuple[str, str]]:
        """Return [(protocol type, state)] of a group; empty if the group does not exist."""
        answer = self._of_group(group, "list_groups", 4, states_filter=[])
        return [
            (each["protocol_type"], each["group_state"])
            for each in answer["groups"]
            if each["group_id"] == group
        ]

    # --- the rest ---------------------------------------------------------------------------------

    def _until_ended(self, transactional_id: str) -> None:
        end_s = time.monotonic() + LIMIT_S
        while True:
            answer = self._of_transaction(
                transactional_id,
                "describe_transactions",
                0,
                transactional_ids=[transactional_id],
            )
            (found,) = answer["transaction_states"]
            if found["transaction_state"] in ENDED:
                return
            assert time.monotonic() < end_s, found
            time.sleep(0.005)

    def _of_transaction(self, name: str, api: str, version: int, **values: Any) -> dict[str, Any]:
        return self._until_answered(TRANSACTION, name, api, version, values)

    def _of_group(self, name: str, api: str, version: int, **values: Any) -> dict[str, Any]:
        return self._until_answered(GROUP, name, api, version, values)

    def _until_answered(
        self, kind: int, name: str, api: str, version: int, values: dict[str, Any]
    ) -> dict[str, Any]:
        """Repeat a request until its answer has no retriable error, and return the answer."""
        end_s = time.monotonic() + LIMIT_S
        while True:
            answer = self._coordinator(kind, name).call(api, version, **values)
            if not RETRIABLE.intersection(_codes(answer)) or time.monotonic() > end_s:
                return answer
            time.sleep(0.01)

    def _coordinator(self, kind: int, name: str) -> RawClient:
        end_s = time.monotonic() + LIMIT_S
        while (found := self._find(kind, name))["error_code"]:
            assert time.monotonic() < end_s, found
            time.sleep(0.05)
        at = found["host"], found["port"]
        if at not in self._links:
            self._links[at] = RawClient(at[1], host=at[0])
        return self._links[at]

    def _find(self, kind: int, name: str) -> dict[str, Any]:
        return self._node.call("find_coordinator", 3, key=name, key_type=kind)


def _rows(offsets: Offsets, *, of_commit: bool = True) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        row = {"partition_index": partition}
        if of_commit:
            row |= {
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": f"at {offset}",
            }
        topics.setdefault(topic, []).append(row)
    return [{"name": name, "partitions": rows} for name, rows in topics.items()]


def _errors(answer: dict[str, Any]) -> list[tuple[str, int, int]]:
    return sorted(
        (topic["name"], row["partition_index"], row["error_code"])
        for topic in answer["topics"]
        for row in topic["partitions"]
    )


def _codes(answer: Any) -> set[int]:
    """Return all error codes of an answer."""
    if isinstance(answer, dict):
        found = {answer["error_code"]} if "error_code" in answer else set()
        return found.union(*[_codes(each) for each in answer.values()])
    if isinstance(answer, list | tuple):
        return set().union(*[_codes(each) for each in answer])
    return set()
