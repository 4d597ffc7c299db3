"""What a number and a text of the wire may be, for what a host hands in.

What comes over the wire is so by its encoding, and nothing here is in its way. What a host passes
may be anything that Python has; what does not fit would be stored, and no client could ever be
answered with it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from groupkeeper.coordinator.core.wire_numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

MAX_TEXT_BYTES: Final = 32_767
"""Of a text on the wire, in UTF-8: what its length can say."""

_T = TypeVar("_T")

_UNFIT: Final = (msgspec.ValidationError, UnicodeEncodeError)
_BYTES: Final = (bytes, bytearray, memoryview)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
"""Of a place in msgspec's words: `$.offsets[...][0]`."""


def whole_number(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return an argument that counts something, also where it is a number of numpy's; TypeError or
    ValueError says what may be given.
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
    """Return an argument that goes into 32 bits with a sign."""
    return whole_number(name, value, least=INT32_MIN, most=INT32_MAX)


def int64(name: str, value: object) -> int:
    """Return an argument that goes into 64 bits with a sign."""
    return whole_number(name, value, least=INT64_MIN, most=INT64_MAX)


def text(name: str, value: object, *, most_bytes: int | None = MAX_TEXT_BYTES) -> str:
    """Return an argument that is a text; TypeError or ValueError says so where it is none, or
    longer than any client could say it, or half of a surrogate pair, which no file and no client
    can be given.
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
    """Return a value of a type that msgspec knows, with bytes where buffers were given, plain
    numbers for numpy's, and lists for other collections.

    Raises TypeError for what has another type, ValueError for a number or a text that the wire does
    not take; both say where in the value it stands.
    """
    name = name or kind.__name__
    try:
        data = msgspec.msgpack.encode(value, enc_hook=_plain)
        found = msgspec.msgpack.decode(data, type=kind)
    except (*_UNFIT, OverflowError, TypeError) as error:
        raise _misfit(name, value, kind) or _error(f"{name}: {error}") from None
    if len(data) > MAX_TEXT_BYTES:  # else none of its texts is
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
    """Say a number of numpy's, and a collection that is no list, as msgspec knows them."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return operator.index(value)


def collection_of_texts(name: str, value: object) -> list[str]:
    """Return an argument that is some texts, and not one, whose letters would be taken for them."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a collection of strings, not {value!r}")
    return [text(f"each of {name}", each) for each in value]


# --- What to say of a value that does not fit -----------------------------------------------------


def _misfit(name: str, value: object, kind: Any) -> Exception | None:
    """Say where in a value what msgspec does not take stands; None for an iterator's, which is used
    up.
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
