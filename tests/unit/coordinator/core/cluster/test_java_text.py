"""Numbers and durations as Java reads them, and spaces as String.trim takes them off."""

from __future__ import annotations

from math import inf, isnan

import pytest

from groupkeeper.coordinator.core.cluster.java_text import (
    parse_double,
    parse_duration_ns,
    parse_int,
    parse_long,
    split_list,
    trim,
)


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


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("\uff10" * 30 + "7", 7),
    ],
)
def test_a_long_number_has_64_bits(text, number):
    assert parse_long(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("1.", 1.0), (".5", 0.5), ("1e-1", 0.1), ("\0-0.5\x1f", -0.5), ("1F", 1.0), ("2.d", 2.0)],
        *[("0x1p-1", 0.5), ("0XA.8p+1D", 21.0), ("-0x.8p0", -0.5)],
        ("0x1p99999999999", inf),
        ("-0x1p99999999999", -inf),
        ("0x1p-99999999999", 0.0),
        ("1e99999999999", inf),
        ("-Infinity", -inf),
    ],
)
def test_a_number_with_a_point_may_be_hexadecimal_and_say_its_type(text, number):
    assert parse_double(text) == number


def test_not_a_number_has_a_sign_like_any_other():
    assert [isnan(parse_double(text)) for text in ("NaN", "+NaN", "-NaN")] == [True] * 3


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ".",
            "d",
            ".f",
            "1e",
            "1_0",
            "1.0fd",
            "1 d",
            "\uff11",
            "\u00a01",
            "nan",
            "inf",
            "NaNd",
        ),
        *(
            "0x1",
            "0x1p",
            "0xp1",
            "0x.p1",
            "0x1p--1",
            "0x1p\uff11",
            "Infinityf",
            "0" * 100_000 + "x",
        ),
    ],
)
def test_nothing_else_is_a_number_with_a_point(text):
    assert parse_double(text) is None


HOUR_NS = 3_600 * 10**9


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("PT1H", HOUR_NS),
        ("-pt-1h", HOUR_NS),
        ("+P1DT-23H", HOUR_NS),
        ("PT59M60S", HOUR_NS),
        ("PT1,5S", 15 * 10**8),
        ("PT-1.000000001S", -1_000_000_001),
        ("PT-0.5S", -5 * 10**8),
        ("PT1.S", 10**9),
        ("P0D", 0),
        ("PT9223372036854775807S", (2**63 - 1) * 10**9),
    ],
)
def test_a_duration_has_signs_and_fractions(text, nanoseconds):
    assert parse_duration_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1DT", "1H", "P1H", "PT1D", "PT1.5H", "PT.5S", "PT1.1234567890S", "P1W"),
        *("PT1H ", "PT1M1H", "PT\uff11H", "PT9223372036854775808S", "P106751991167301D"),
        "P106751991167300DT24H",
        "PT" + "1" * 5_000 + "H",
    ],
)
def test_nothing_else_is_a_duration(text):
    assert parse_duration_ns(text) is None


def test_a_list_is_taken_apart_at_commas_and_the_spaces_of_ascii_around_them():
    assert split_list(" a \t,\v b\x1c,\u2003c,\0d \0") == ["a", "b\x1c", "\u2003c", "\0d"]
    assert split_list(",") == ["", ""]
    assert split_list("\0 ") == []


def test_control_characters_are_trimmed_and_other_spaces_are_not():
    assert trim("\0\x1f \t1 2\r\n ") == "1 2"
    assert trim("\u00a01\u2003") == "\u00a01\u2003"
    assert trim(" ") == ""
