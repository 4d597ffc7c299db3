"""Numbers as Integer.parseInt reads them, and spaces as String.trim takes them off."""

from __future__ import annotations

import pytest

from coordinator.core.java_text import parse_int, trim


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+46000", 46_000),
        ("-7", -7),
        ("-0", 0),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0" * 5_000 + "46000", 46_000),
        ("\uff14\uff16\uff10\uff10\uff10", 46_000),  # of full width
        ("\u0664\u0660", 40),  # Arabic
        ("\u0660" * 20 + "4\u1816", 46),  # Arabic zeros, then a Mongolian six
    ],
)
def test_a_number_is_read_in_the_digits_of_any_script(text, number):
    assert parse_int(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "+", "-", "--1", "+-1", "1_0", "1e4", "1.0", "0x10", "46000L", " 1", "1 ", "\u00b2"),
        *("2147483648", "-2147483649", "9" * 5_000),
        "\u22121",  # a minus sign, not a hyphen
        "\U0001d7d2\U0001d7d8",  # mathematical digits, beyond 16 bits
        "4\U0001d7d8",
    ],
)
def test_nothing_else_is_a_number(text):
    assert parse_int(text) is None


def test_control_characters_are_trimmed_and_other_spaces_are_not():
    assert trim("\0\x1f \t1 2\r\n ") == "1 2"
    assert trim("\u00a01\u2003") == "\u00a01\u2003"
    assert trim(" ") == ""
