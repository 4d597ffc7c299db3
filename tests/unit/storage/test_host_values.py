"""What a host may hand in as an object with parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from groupkeeper.coordinator.core.wire_values import MAX_TEXT_BYTES, Int32, Int64
from groupkeeper.storage.host_values import checked


class Numpys:
    """A whole number that is no int."""

    def __index__(self) -> int:
        return 7


LONG = "\u00e9" * (MAX_TEXT_BYTES // 2)  # as long as a text may be: two bytes each, and one
TOO_LONG = LONG + "\u00e9"


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda each: each, str),
        (lambda each: [["a"], ["b", each]], list[list[str] | None]),
        (lambda each: {each: 1}, dict[str, int]),
        (lambda each: {1: {"a": each}}, dict[int, dict[str, str]]),
        (lambda each: (each, b"x" * 2 * MAX_TEXT_BYTES), tuple[str, bytes]),
    ],
)
def test_each_text_of_a_value_is_one_that_the_wire_can_say(make: Any, kind: Any) -> None:
    assert checked(make(LONG), kind, "given") == make(LONG)
    problem = "each text of given must be at most 32767 bytes of UTF-8, not 32768"
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        checked(make(TOO_LONG), kind, "given")


class Pair(NamedTuple):
    """What a plain pair will do for."""

    name: str
    number: Int32


@dataclass
class Holder:
    """What has parts with names."""

    pairs: Sequence[Pair]
    data: bytes = b""
    offset: Int64 | None = None
    flag: bool = False


@pytest.mark.parametrize(
    ("value", "kind", "error", "problem"),
    [
        (Holder([("a", 1), ("b", "2")]), Holder, TypeError, "Holder.pairs[1][1]: Expected `int`"),
        (Holder([Pair("a", 2**31)]), Holder, ValueError, "Holder.pairs[0][1]: Expected `int` <= 2"),
        (Holder([("a", -(2**80))]), Holder, ValueError, "Holder.pairs[0][1]: Expected `int` >= -2"),
        (Holder([("\ud83d", 1)]), Holder, ValueError, "Holder: 'utf-8' codec can't encode"),
        (Holder(["a"]), Holder, TypeError, "Holder.pairs[0]: Expected `array`, got `str`"),
        (Holder([("a", object())]), Holder, TypeError, "Holder.pairs[0][1]: Expected `int`, got"),
        (Holder("a"), Holder, TypeError, "Holder.pairs: Expected `array`, got `str`"),
        (Holder([], "a"), Holder, TypeError, "Holder.data: Expected `bytes`, got `str`"),
        (Holder([], offset=1.5), Holder, TypeError, "Holder.offset: Expected `int | null`, got"),
        (Holder([], flag=1), Holder, TypeError, "Holder.flag: Expected `bool`, got `int`"),
        ({"t": [0.5]}, Mapping[str, list[Int32]], TypeError, "given['t'][0]: Expected `int`"),
        ({7: [0]}, Mapping[str, list[Int32]], TypeError, "each key of given: Expected `str`"),
        (None, list[str], TypeError, "given: Expected `array`, got `null`: None"),
        (iter(["0"]), list[int], TypeError, "given: Expected `int`, got `str` - at `$[0]`"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place_and_by_what_may_stand_there(
    value: Any, kind: Any, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(problem)}"):
        checked(value, kind, "" if kind is Holder else "given")
