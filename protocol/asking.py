"""The client's side of the protocol: write requests and read responses.

The command line and the gateway use it with brokers. Any program may listen on a broker's port. So
``protocol.reader`` reads the responses, which is safe for any bytes. Milliseconds and error codes
are plain integers.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES
from groupkeeper.protocol.packing import NO_TAGS, classic_string
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.writer import Row, write_entity

MAX_ELEMENTS: Final = 5_000_000
"""The largest number of array elements that are read from one response. A list of all groups of a
large cluster has fewer.
"""

_FIXED_HEADER: Final = Struct(">hhi").pack


def write_request(
    api_key: int, version: int, correlation_id: int, client_id: str, **values: Any
) -> bytes:
    """Return the whole frame of a request. ``values`` are the fields of its body by name.

    Values of fields that this version lacks are ignored, so one call serves all versions.
    """
    schema = load_request_schema(api_key, version)
    out = bytearray(PREFIX_BYTES)
    out += _FIXED_HEADER(api_key, version, correlation_id)
    out += classic_string(client_id)
    if schema.__header_schema__.__flexible__:
        out += NO_TAGS
    out += write_entity(schema, Row(**values))
    out[:PREFIX_BYTES] = (len(out) - PREFIX_BYTES).to_bytes(PREFIX_BYTES, "big")
    return bytes(out)


def read_response(api_key: int, version: int, correlation_id: int, body: bytes) -> Any:
    """Return the body of a response as an entity of kio.

    ``body`` is a whole frame without its length prefix. Raises only ProtocolError: if the bytes are
    invalid, or if the response has another correlation id.
    """
    schema = load_response_schema(api_key, version)
    if len(body) < 4 or int.from_bytes(body[:4], "big", signed=True) != correlation_id:
        raise ProtocolError("bad_header", "the answer is to another request")
    # header v1 is v0 followed by tagged fields; none is known
    start = 4 + (_tags_size(body) if schema.__header_schema__.__version__ > 0 else 0)
    return read_entity(schema, body, start, MAX_ELEMENTS)


def _tags_size(body: bytes) -> int:
    if len(body) < 5 or body[4] != 0:
        raise ProtocolError("bad_header", "the answer has tags in its header, which no API has")
    return 1
