"""Which patterns a member may subscribe to, and what they match."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from groupkeeper.coordinator.runtime import patterns
from groupkeeper.coordinator.runtime.patterns import PatternRefusedError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders", "my.orders", False),
        ("orders|orders.eu", "orders.eu", True),
        ("ORDERS", "orders", False),
        ("(?i)ORDERS", "orders", True),
        (r"\Q\C.\E.*", r"\C.x", True),
        (r"\\C", r"\C", True),
        (r"[\\C]", "C", True),
        ("[(?P<n>]+[(?P<n>]+", "n>n<", True),
        (r"[](?P<n>[:alpha:]\]]+(?P<n>x)", "n]x", True),
        (r"[^(?<n>\].(?P<n>-[:alpha:]", "b", True),
        (r"[\d-[:alpha:](?<n>]+(?<n>x)", "7-a?x", True),
        (r"[a-\x63-[:digit:](?<n>]+(?<n>x)", "c-1x", True),
        (r"[\pN-[:alpha:](?<n>]+(?<n>x)", "1-ax", True),
        ("[]-a(?<n>]+(?<n>x)", "]_ax", True),
        (r"[\[:][+-[:]+[[:digit:]:]", ":[:", True),
        ("(?P<n>a)(?P<m>b)", "ab", True),
    ],
)
def test_a_pattern_matches_whole_names(pattern, name, matches):
    assert (compile_pattern(pattern).fullmatch(name.encode()) is not None) is matches


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing ): ("),
        ("(?=a)", "invalid perl operator: (?="),
        (r"a\1", r"invalid escape sequence: \1"),
        (r"a\C", r"invalid escape sequence: \C"),
        (r"\\\C", r"invalid escape sequence: \C"),
        (r"\Qa\E\C", r"invalid escape sequence: \C"),
        ("(?P<n>a)|(?P<n>b)", "duplicate capture group name: n"),
        ("(?<n>a)[x](?P<n>b)", "duplicate capture group name: n"),
        (r"[+-[:a:]\C]", r"invalid escape sequence: \C"),
        (r"[a-\x63-[:digit:]]\C", r"invalid escape sequence: \C"),
        ("[+-[:a:](?P<n>x)](?P<n>y)", "duplicate capture group name: n"),
        ("[x[:]", "invalid character class range: [:]"),
        ("a" * 4_097, "a pattern has 4096 characters at most, and this one 4097"),
        (r"\pL{200}", "pattern too large - compile failed"),  # RE2's own limit would allow it
        (r"\pL{1000}", "pattern too large - compile failed"),
        ("\ud800", "it is not valid Unicode"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_a_reason(pattern, reason, capfd):
    with pytest.raises(PatternRefusedError) as refused:
        compile_pattern(pattern)
    assert str(refused.value) == reason
    assert capfd.readouterr() == ("", ""), "RE2 writes nothing of its own"


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "re2", None)
    patterns._re2.cache_clear()
    yield
    patterns._re2.cache_clear()


@pytest.mark.usefixtures("without_re2")
def test_without_the_extra_a_pattern_is_refused_with_what_to_install():
    with pytest.raises(PatternRefusedError, match="with its extra `patterns`"):
        compile_pattern("orders")
