"""Check that values from a host fit into Kafka's protocol.

Values from a client fit because of their encoding, so they are not checked here. A host may pass
any Python object. If one that does not fit were stored, no reply to a client could contain it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from groupkeeper.coordinator.core.wire_numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

MAX_TEXT_BYTES: Final = 32_767
"""The largest length of a string in Kafka's protocol, in bytes of UTF-8."""

_T = TypeVar("_T")

_UNFIT: Final = (msgspec.ValidationError, UnicodeEncodeError)
_BYTES: Final = (bytes, bytearray, memoryview)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
"""One step of a path in msgspec's messages, such as `$.offsets[...][0]`."""


def whole_number(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return an argument as an int. Numbers of numpy are accepted.

    Raises TypeError if it is not a whole number, and ValueError if it is out of bounds.
    """
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def int32(name: str, value: object) -> int:
    """Return an argument that fits into 32 bits with a sign."""
    return whole_number(name, value, least=INT32_MIN, most=INT32_MAX)


def int64(name: str, value: object) -> int:
    """Return an argument that fits into 64 bits with a sign."""
    return whole_number(name, value, least=INT64_MIN, most=INT64_MAX)


def text(name: str, value: object, *, most_bytes: int | None = MAX_TEXT_BYTES) -> str:
    """Return an argument that is a string.

    Raises TypeError if it is not a string. Raises ValueError if it is too long for the protocol, or
    has half of a surrogate pair, which UTF-8 cannot encode.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: {error}") from None
    if most_bytes is not None and size > most_bytes:
        raise ValueError(f"{name} must be at most {most_bytes} bytes of UTF-8, not {size}")
    return value


def checked(value: object, kind: type[_T], name: str = "") -> _T:
    """Return a value as a type that msgspec knows.

    Buffers become bytes, numbers of numpy become plain numbers, other collections become lists.
    Raises TypeError for a part of another type, and ValueError for a number or a text that does not
    fit into the protocol. The message says which part it is.
    """
    name = name or kind.__name__
    try:
        data = msgspec.msgpack.encode(value, enc_hook=_plain)
        found = msgspec.msgpack.decode(data, type=kind)
    except (*_UNFIT, OverflowError, TypeError) as error:
        raise _misfit(name, value, kind) or _error(f"{name}: {error}") from None
    if len(data) > MAX_TEXT_BYTES:  # otherwise no text in it is too long
        for each in _texts(msgspec.msgpack.decode(data)):
            text(f"each text of {name}", each)
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from _texts([*value.keys(), *value.values()])


def _plain(value: Any) -> object:
    """Return a number of numpy, or a collection that is no list, as a type that msgspec knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return operator.index(value)


def collection_of_texts(name: str, value: object) -> list[str]:
    """Return an argument that is a collection of strings. Raises TypeError for a single string."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a collection of strings, not {value!r}")
    return [text(f"each of {name}", each) for each in value]


# --- The message for a value that does not fit ----------------------------------------------------


def _misfit(name: str, value: object, kind: Any) -> Exception | None:
    """Return the error that names the part which msgspec refuses; None if it is not found again.

    An iterator in the value was consumed before, so a problem in it is not found.
    """
    plain = msgspec.to_builtins(value, builtin_types=_BYTES, enc_hook=_shown)
    told = _problem(plain, kind)
    if told is None:
        return None
    problem, _, place = told.partition(" - at ")
    part: Any = plain
    for field, index in _STEP.findall(place):
        if index == "...":  # msgspec does not say which key
            entries = dict(part)
            for key in entries:
                part.clear()
                part[key] = entries[key]
                if _problem(plain, kind) is not None:
                    break
            part, name = part[key], f"{name}[{key!r}]"
        elif field:
            part, name = part[field], f"{name}.{field}"
        else:
            part, name = part[int(index)], f"{name}[{index}]"
    name = f"each key of {name}" if "`key`" in place else name
    link = ":" if ", got `" in problem else ", not"
    return _error(f"{name}: {problem}{link} {part!r}")


def _problem(plain: object, kind: Any) -> str | None:
    try:
        msgspec.convert(plain, kind, builtin_types=_BYTES)
    except _UNFIT as error:
        return str(error)
    return None


def _error(problem: str) -> Exception:
    return (TypeError if ", got `" in problem else ValueError)(problem)


def _shown(value: Any) -> object:
    try:
        return _plain(value)
    except TypeError:
        return {}
