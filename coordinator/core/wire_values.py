"""The numbers and texts of the wire: their types and bounds, and the checks of single values."""

from __future__ import annotations

import operator
from typing import Annotated, Final, TypeAlias

import msgspec

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
MAX_TEXT_BYTES: Final = 32_767
"""The largest length of a string in Kafka's protocol, in bytes of UTF-8."""

Int16: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
"""The type of producer epochs."""

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
"""The type of partitions, leader epochs, generations and timeouts."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
"""The type of offsets and of times in milliseconds."""


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
    """Return an argument that is a signed integer of 32 bits. Errors as in ``whole_number``."""
    return whole_number(name, value, least=INT32_MIN, most=INT32_MAX)


def int64(name: str, value: object) -> int:
    """Return an argument that is a signed integer of 64 bits. Errors as in ``whole_number``."""
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
