"""The integers of the wire, as types with their bounds."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
"""Partitions, leader epochs, generations, timeouts."""

Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
"""Offsets and times in milliseconds."""
