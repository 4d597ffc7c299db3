"""Which single values the wire can carry."""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.coordinator.core.wire_values import (
    MAX_TEXT_BYTES,
    int32,
    int64,
    text,
    whole_number,
)

LONG = "\u00e9" * (MAX_TEXT_BYTES // 2)  # as long as a text may be: two bytes each, and one
TOO_LONG = LONG + "\u00e9"


class Numpys:
    """A whole number that is no int."""

    def __index__(self) -> int:
        return 7


def test_a_whole_number_becomes_an_int_and_its_bounds_are_its_own() -> None:
    assert type(whole_number("n", Numpys(), least=7, most=7)) is int
    assert whole_number("n", 2**80, least=0) == 2**80
    with pytest.raises(ValueError, match=r"^n must be at least 8, not 7$"):
        whole_number("n", 7, least=8)
    with pytest.raises(ValueError, match=r"^n must be at most 6, not 7$"):
        whole_number("n", 7, least=0, most=6)


@pytest.mark.parametrize("value", [7.0, "7", True, None])
def test_what_is_no_whole_number_is_told(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^n must be a whole number, not {value!r}$"):
        whole_number("n", value, least=0)


@pytest.mark.parametrize(("check", "bits"), [(int32, 31), (int64, 63)])
def test_both_ends_of_what_the_wire_takes_are_taken(check: Any, bits: int) -> None:
    for edge in (-(2**bits), 2**bits - 1):
        assert check("n", edge) == edge
    for beyond in (-(2**bits) - 1, 2**bits):
        with pytest.raises(ValueError, match=r"^n must be at"):
            check("n", beyond)


def test_a_text_is_one_that_can_be_written() -> None:
    assert text("t", "\U0001f600") == "\U0001f600"
    with pytest.raises(TypeError, match=r"^t must be a string, not b'x'$"):
        text("t", b"x")
    with pytest.raises(ValueError, match=r"^t: .* surrogates not allowed$"):
        text("t", "\ud83d")


def test_a_text_is_as_long_as_the_wire_can_say() -> None:
    assert text("t", LONG + "e") == LONG + "e"
    with pytest.raises(ValueError, match=r"^t must be at most 32767 bytes of UTF-8, not 32768$"):
        text("t", TOO_LONG)
    assert text("t", TOO_LONG, most_bytes=None) == TOO_LONG
