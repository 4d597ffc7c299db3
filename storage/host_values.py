"""Check that objects from a host program fit into Kafka's protocol.

A host may pass any Python object. If an object that does not fit were stored, no reply to a client
could contain it. Values from a client always fit, because they were decoded from the protocol.

This module checks objects that contain other objects. ``coordinator/core/wire_values`` checks
single values.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from groupkeeper.coordinator.core.wire_values import MAX_TEXT_BYTES, text

_T = TypeVar("_T")

_UNFIT: Final = (msgspec.ValidationError, UnicodeEncodeError)
_BYTES: Final = (bytes, bytearray, memoryview)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
"""One step of the path in an error message of msgspec, such as `[...]` in `$.offsets[...][0]`."""


def checked(value: object, kind: type[_T], name: str = "") -> _T:
    """Return a value as an object of the type ``kind``. ``name`` is the name of the value in error
    messages.

    Buffers become bytes, numbers of numpy become plain numbers, mappings become dicts, and other
    collections become lists. Raises TypeError if a part of the value has a wrong type. Raises
    ValueError if a number or a text does not fit into the protocol. The message names that part.
    """
    name = name or kind.__name__
    try:
        data = msgspec.msgpack.encode(value, enc_hook=_plain)
        found = msgspec.msgpack.decode(data, type=kind)
    except (*_UNFIT, OverflowError, TypeError) as error:
        raise _misfit(name, value, kind) or _error(f"{name}: {error}") from None
    if len(data) > MAX_TEXT_BYTES:  # shorter data contains no text that is too long
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
    """Return a numpy number, or a collection that is not a list, as a type that msgspec knows.
    Raises TypeError for any other value.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return operator.index(value)


def collection_of_texts(name: str, value: object) -> list[str]:
    """Return an argument as a list of strings. Raises TypeError if it is not a collection, or is a
    single string.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a collection of strings, not {value!r}")
    return [text(f"each of {name}", each) for each in value]


# --- The message for a value that does not fit ----------------------------------------------------


def _misfit(name: str, value: object, kind: Any) -> Exception | None:
    """Return the error that names the part of the value which msgspec refuses; None if this part is
    not found.

    An iterator in the value was consumed by the first check. So a problem in its elements is not
    found.
    """
    plain = msgspec.to_builtins(value, builtin_types=_BYTES, enc_hook=_shown)
    found = _problem(plain, kind)
    if found is None:
        return None
    problem, _, place = found.partition(" - at ")
    part: Any = plain
    for field, index in _STEP.findall(place):
        if index == "...":  # msgspec does not name the key
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
