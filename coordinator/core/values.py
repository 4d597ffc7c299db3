"""What a number and a text of the wire may be, for what a host hands in.

What comes over the wire is so by its encoding, and nothing here is in its way. What a host passes
may be anything that Python has; what does not fit would be stored, and no client could ever be
answered with it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

MAX_TEXT_BYTES: Final = 32_767
"""Of a text on the wire, in UTF-8: what its length can say."""

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
"""Partitions, leader epochs, generations, timeouts."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
"""Offsets, and moments in milliseconds."""

_T = TypeVar("_T")

_UNFIT: Final = (TypeError, ValueError, OverflowError, msgspec.ValidationError)
"""What msgspec raises for what it cannot take."""

_SEVERAL: Final[dict[Any, str]] = {int: "whole numbers", str: "strings", tuple: "tuples"}


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
    try:
        return cast("_T", _converted(value, kind))
    except _UNFIT as error:
        raise _misfit(name or kind.__name__, value, kind, error) from None


def _converted(value: object, kind: Any) -> object:
    data = msgspec.msgpack.encode(value, enc_hook=_plain)
    found = msgspec.msgpack.decode(data, type=kind)
    if len(data) > MAX_TEXT_BYTES:  # else none of its texts is
        for each in _texts(msgspec.msgpack.decode(data)):
            text("each text", each)
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
    return list(value) if isinstance(value, Iterable) else operator.index(value)


def collection_of_texts(name: str, value: object) -> list[str]:
    """Return an argument that is some texts, and not one, whose letters would be taken for them."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a collection of strings, not {value!r}")
    return [text(f"each of {name}", each) for each in value]


# --- What to say of a value that does not fit -----------------------------------------------------


def _misfit(name: str, value: object, kind: Any, error: Exception) -> Exception:
    """Say which part of a value that was refused does not fit, and what may stand there."""
    kind, limits = _bare(kind)
    for place, part, wanted in _parts(name, value, kind):
        try:
            _converted(part, wanted)
        except _UNFIT as inner:
            return _misfit(place, part, wanted, inner)
    try:
        if kind is int:
            whole_number(name, value, least=limits[0], most=limits[1])
        elif kind is str:
            text(name, value)
    except (TypeError, ValueError) as told:
        return told
    if isinstance(value, Iterator):  # it can be read but once: its parts are gone
        return (TypeError if ", got `" in str(error) else ValueError)(f"{name}: {error}")
    return TypeError(f"{name} must be {_wanted(kind)}, not {value!r}")


def _bare(kind: Any) -> tuple[Any, tuple[int, int]]:
    """Part a type, which may be None as well, from the limits of its numbers."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
        return kind, (limits.ge, limits.le)
    return kind, (INT64_MIN, INT64_MAX)


def _parts(name: str, value: Any, kind: Any) -> Iterator[tuple[str, object, Any]]:
    """Yield the parts of a value: where each stands, itself, and what it should be."""
    arguments, origin = get_args(kind), get_origin(kind)
    if not arguments:
        hints = get_type_hints(kind, include_extras=True)
        if isinstance(value, kind):
            yield from ((f"{name}.{field}", getattr(value, field), hints[field]) for field in hints)
        elif issubclass(kind, tuple) and isinstance(value, tuple):  # a plain pair for a named one
            yield from _numbered(name, value, hints.values())
    elif issubclass(origin, Mapping):
        for key, part in value.items() if isinstance(value, Mapping) else ():
            yield f"each key of {name}", key, arguments[0]
            yield f"{name}[{key!r}]", part, arguments[1]
    elif _is_collection(value):
        is_fixed = origin is tuple and arguments[-1] is not ...
        yield from _numbered(name, value, arguments if is_fixed else repeat(arguments[0]))


def _numbered(
    name: str, value: Iterable[object], kinds: Iterable[Any]
) -> Iterator[tuple[str, object, Any]]:
    for position, (part, kind) in enumerate(zip(value, kinds, strict=False)):
        yield f"{name}[{position}]", part, kind


def _is_collection(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _wanted(kind: Any) -> str:
    arguments = get_args(kind)
    if not arguments:
        article = "" if kind is bytes else "an " if kind.__name__[0] in "AEIO" else "a "
        return f"{article}{kind.__name__}"
    if issubclass(get_origin(kind), Mapping):
        return "a mapping"
    if get_origin(kind) is tuple and arguments[-1] is not ...:
        return f"a tuple of {len(arguments)} values"
    each, _ = _bare(arguments[0])
    each = get_origin(each) or each
    return f"a collection of {_SEVERAL.get(each) or each.__name__}"
