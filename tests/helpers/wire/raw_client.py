"""A Kafka client that sends exactly the request that a test asks for, over one socket.

Requests and replies are plain dicts in Kafka's own field names (snake case, as kio spells them).
"""

from __future__ import annotations

import functools
import importlib
import io
import pkgutil
import socket
import struct
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

API_KEYS: dict[str, int] = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "api_versions": 18,
    "create_topics": 19,
    "delete_topics": 20,
    "create_partitions": 37,
    "describe_configs": 32,
    "delete_groups": 42,
    "incremental_alter_configs": 44,
    "offset_delete": 47,
    "describe_cluster": 60,
    "consumer_group_heartbeat": 68,
    "consumer_group_describe": 69,
    "list_config_resources": 74,
}
"""The APIs that we serve without an upstream."""
SENT_KEYS: dict[str, int] = {
    **API_KEYS,
    "sasl_handshake": 17,
    "init_producer_id": 22,
    "add_offsets_to_txn": 25,
    "end_txn": 26,
    "txn_offset_commit": 28,
    "sasl_authenticate": 36,
    "alter_partition_reassignments": 45,
    "describe_transactions": 65,
}
"""The APIs that a raw client can send. Some of them are served only by a gateway."""

assert SENT_KEYS.keys() <= schema_name_map.keys()


class RawClient:
    """One connection. It must not be used by several threads at once."""

    def __init__(
        self,
        port: int,
        *,
        client_id: str = "raw-client",
        timeout_s: float = 30,
        host: str = "127.0.0.1",
    ) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send a request, and return its reply. Fields without a value are empty or default."""
        correlation_id = self.send(api, version, **values)
        return self.receive(api, version, correlation_id)

    def send(self, api: str, version: int, **values: Any) -> int:
        """Send a request without waiting, such as a join that is parked. Return the correlation id.

        Fields that this version lacks are left out. Fails for a name that no request has.
        """
        unknown = {*_names_in(values)} - _request_names()
        assert not unknown, f"no request has {sorted(unknown)}"
        self._correlation_id += 1
        self.socket.sendall(
            encode_request(api, version, values, self._correlation_id, self._client_id)
        )
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> dict[str, Any]:
        """Return the next reply. It must have this correlation id."""
        answered, reply = decode_response(api, version, self.receive_frame())
        assert answered == correlation_id, "replies out of order"
        return reply

    def receive_frame(self) -> bytes:
        """Return the bytes of the next reply, without its length."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError("the peer closed the connection")
            data += chunk
        return bytes(data)


CHANGES_OF_TOPICS = frozenset({"create_topics", "create_partitions", "delete_topics"})
CHANGE_TIMEOUT_MS = 20_000


def import_schemas(*apis: tuple[str, int]) -> None:
    """Import what the requests and replies of these APIs and versions need: usually slow."""
    for api, version in apis:
        entity_writer(load_request_schema(SENT_KEYS[api], version))
        entity_reader(load_response_schema(SENT_KEYS[api], version))


def encode_request(
    api: str, version: int, values: Mapping[str, Any], correlation_id: int, client_id: str
) -> bytes:
    """Return the frame of a request, with its length.

    Changes of topics have a timeout by default, because brokers refuse them without one.
    """
    if api in CHANGES_OF_TOPICS:
        values = {"timeout": CHANGE_TIMEOUT_MS, **values}
    schema = load_request_schema(SENT_KEYS[api], version)
    header = schema.__header_schema__
    buffer = io.BytesIO()
    header_values = {
        "request_api_key": SENT_KEYS[api],
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    entity_writer(header)(buffer, from_plain(header, header_values))
    entity_writer(schema)(buffer, from_plain(schema, values))
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def _names_in(values: Any) -> Iterator[str]:
    """Yield every name that is given a value, at any depth."""
    if isinstance(values, Mapping):
        yield from values
        values = values.values()
    if not isinstance(values, str | bytes) and isinstance(values, Iterable):
        for value in values:
            yield from _names_in(value)


@functools.cache
def _request_names() -> frozenset[str]:
    """Return the names of the fields of all requests in all versions."""
    modules = [
        importlib.import_module(f"kio.schema.{api}.{version.name}.request")
        for api in SENT_KEYS
        for version in pkgutil.iter_modules(importlib.import_module(f"kio.schema.{api}").__path__)
    ]
    entities = [entity for module in modules for entity in vars(module).values()]
    named = [fields(entity) for entity in entities if is_dataclass(entity)]
    return frozenset(field.name for of_entity in named for field in of_entity)


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, dict[str, Any]]:
    """Return the correlation id and the content of a reply, without its length."""
    response = load_response_schema(SENT_KEYS[api], version)
    # kio reads from bytes and returns the position of its end.
    header, size = entity_reader(response.__header_schema__)(frame, 0)
    entity, _ = entity_reader(response)(frame, size)
    plain = to_plain(entity)
    assert isinstance(plain, dict)
    return header.correlation_id, plain


def decode_request(api: str, version: int, frame: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the content of a request, without its length."""
    request = load_request_schema(API_KEYS[api], version)
    header, size = entity_reader(request.__header_schema__)(frame, 0)
    entity, _ = entity_reader(request)(frame, size)
    return to_plain(header), to_plain(entity)


def from_plain(schema: Any, values: Mapping[str, Any]) -> Any:
    """Return a kio entity from dicts. Names that this version lacks are left out."""
    hints = _hints(schema)
    given: dict[str, Any] = {}
    for field in fields(schema):
        if field.name in values:
            given[field.name] = _convert(hints[field.name], values[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            given[field.name] = _empty(hints[field.name])
    return schema(**given)


_HINTS: dict[Any, dict[str, Any]] = {}


def _hints(schema: Any) -> dict[str, Any]:
    if schema not in _HINTS:
        _HINTS[schema] = get_type_hints(schema)
    return _HINTS[schema]


def _convert(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    members = [a for a in get_args(hint) if a is not type(None)]
    if get_origin(hint) in (Union, types.UnionType) and len(members) == 1:
        return _convert(members[0], value)
    if get_origin(hint) is tuple:
        return tuple(_convert(get_args(hint)[0], item) for item in value)
    if is_dataclass(hint) and isinstance(value, Mapping):
        return from_plain(hint, value)
    if _is_duration(hint) and isinstance(value, int):
        return timedelta(milliseconds=value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return value


def _is_duration(hint: Any) -> bool:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return isinstance(hint, type) and issubclass(hint, timedelta)


def _empty(hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return ()
    if get_origin(hint) in (Union, types.UnionType):
        return None
    if _is_duration(hint):
        return timedelta(milliseconds=-1)
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(0)
    for kind, value in ((bool, False), (int, 0), (str, ""), (bytes, b"")):
        if isinstance(hint, type) and issubclass(hint, kind):
            return value
    raise TypeError(f"no empty value for {hint}")


def to_plain(value: Any) -> Any:
    """Return a kio entity as dicts, lists, integers (also for durations in milliseconds and error
    codes) and strings.
    """
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    return value
