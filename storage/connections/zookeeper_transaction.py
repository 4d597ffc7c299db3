"""The operations of one transaction in ZooKeeper: all of them are done, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import kazoo.exceptions

from groupkeeper.storage.connections.zookeeper_client import refusal
from groupkeeper.storage.connections.zookeeper_errors import TransactionRefused, ZooKeeperError

ANY_VERSION: Final = -1

_OPERATION_BYTES: Final = 256
"""An upper estimate of the bytes of an operation without its path and its value: headers and access
list."""


class CheckNode(NamedTuple):
    """Change nothing. Fails if the znode does not exist, or has another version."""

    path: str
    version: int = ANY_VERSION


class CreateNode(NamedTuple):
    """Create a znode. Fails if the znode exists, or if its parent does not exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetNode(NamedTuple):
    """Replace the data of a znode. Fails if the znode does not exist, or has another version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class DeleteNode(NamedTuple):
    """Delete a znode. Fails if the znode does not exist, has another version, or has children."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = CheckNode | CreateNode | SetNode | DeleteNode


def size_of(operation: Operation) -> int:
    """Return an upper bound of the bytes that an operation needs in a request."""
    data = operation.data if isinstance(operation, CreateNode | SetNode) else b""
    return len(operation.path.encode()) + len(data) + _OPERATION_BYTES


def sender(client: Any, operations: Sequence[Operation]) -> Callable[[], Any]:
    """Return a function that sends the operations with kazoo's client."""

    def send() -> Any:
        transaction = client.transaction()
        for operation in operations:
            match operation:
                case CheckNode(path, version):
                    transaction.check(path, version)
                case CreateNode(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case SetNode(path, data, version):
                    transaction.set_data(path, data, version)
                case DeleteNode(path, version):
                    transaction.delete(path, version)
        return transaction.commit_async()

    return send


_NOT_THE_CAUSE: Final = (
    kazoo.exceptions.RolledBackError,
    kazoo.exceptions.RuntimeInconsistency,
)
"""The answers that ZooKeeper gives for the other operations of a transaction, if one operation
failed."""


def check_answers(operations: Sequence[Operation], answers: Sequence[object]) -> None:
    """Raise TransactionRefused if the answers say that an operation failed."""
    failed = [each for each in enumerate(answers) if isinstance(each[1], Exception)]
    if not failed:
        return
    causes = [each for each in failed if not isinstance(each[1], _NOT_THE_CAUSE)]
    position, answer = (causes or failed)[0]
    path = operations[position].path
    error = refusal(path, answer) or ZooKeeperError(f"{path}: {type(answer).__name__}")
    raise TransactionRefused(position, error)
