"""The operations of transactions, and the bytes that they need in a request (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from groupkeeper.storage.connections.consul import MOST_TRANSACTION_BYTES

Operation: TypeAlias = Mapping[str, Any]

MAX_BODY_BYTES: Final = MOST_TRANSACTION_BYTES - 1024

_AROUND_BYTES: Final = 100
"""The largest number of bytes of JSON around the key and the value of an operation."""


def check(key: str, index: int) -> Operation:
    """Return an operation that fails unless the key exists and has this index."""
    return {"Verb": "check-index", "Key": key, "Index": index}


def replace(key: str, index: int, value: bytes) -> Operation:
    """Return an operation that writes the key. It fails unless the key has this index. Index 0
    means that the key must not exist.
    """
    return {"Verb": "cas", "Key": key, "Index": index, "Value": value}


def write(key: str, value: bytes) -> Operation:
    """Return an operation that writes the key."""
    return {"Verb": "set", "Key": key, "Value": value}


def read(key: str) -> Operation:
    """Return an operation that reads the key. It fails if the key does not exist."""
    return {"Verb": "get", "Key": key}


def read_all(prefix: str) -> Operation:
    """Return an operation that reads all keys with this prefix, perhaps none."""
    return {"Verb": "get-tree", "Key": prefix}


def delete(key: str) -> Operation:
    """Return an operation that deletes the key if it exists."""
    return {"Verb": "delete", "Key": key}


def delete_all(prefix: str) -> Operation:
    """Return an operation that deletes all keys with this prefix, perhaps none."""
    return {"Verb": "delete-tree", "Key": prefix}


def size_of(operations: Iterable[Operation]) -> int:
    """Return the most bytes that operations need in the body of a transaction."""
    return sum(
        _AROUND_BYTES + len(json.dumps(each["Key"])) + (len(each.get("Value", b"")) + 2) // 3 * 4
        for each in operations
    )
