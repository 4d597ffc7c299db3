"""The patterns of consumer groups beside RE2/J, the library that Kafka's coordinator uses."""

from __future__ import annotations

import base64
import random
import re
import subprocess
from pathlib import Path

import pytest

from groupkeeper.coordinator.runtime.patterns import PatternRefusedError, compile_pattern
from tests.helpers.clients.ecosystem import JDK, Unavailable, kafka_jars, need

pytestmark = [pytest.mark.clients, pytest.mark.java]

PATTERNS = 5_000
PROGRAM = Path(__file__).parent / "kafka/Patterns.java"
PARTS = r"""
a b . - _ 0 orders / # é ß ` ~ , ; : = ! @ % & < > " '
\. \- \_ \/ \" \@ \< \n \a \f \t \v \d \w \s \D \W \S \b \B \z \A \Z \Q \E \C \e \G \R \X \h \cA \N
\x41 \x{41} \x{10FFFF} \x{110000} \x \xg \x{} \101 \0 \08 \777 \1 \8 \u0041 \U \l \L \é \k<n>
\pL \pN \PN \pC \p \pZ \p{L \p{Lx} \p{Lu} \p{Greek} \p{Latin} \p{Han} \p{^L} \P{^L} \p{Any} \p{Kawi}
[a-z] [^a] []a] [^]a] [a a] [ ] [-a] [a-] [a-b-c] [--a] [z-a] [a-a] [a-\d] [\d-a] [a&&b] [\pL] [\C]
[\Q]\E] [\b] [\z] [[:alpha:]] [^[:word:]] [[:^digit:]] [[:foo:]] [[=a=]] [\x00-\x{10FFFF}]
( ) (?: (?P<n> (?<n> (?P<m> (?P< (?P<1> (?P<> (?P<é> (?P=n) (?'n'a) (?i) (?s) (?m) (?U) (?ims) (?-i:
(?i-s: (?s-: (?i (?x) (?^) (?= (?! (?#x) (?>a) (?:) () (|) (a*)* (a|b)* ((a)) (?P<n>a)(?P<n>b)
^ $ | * + ? *? +? ?? ++ ** { } {2} {2,} {2,3} {,3} {3,2} {1000} {1001} {a} a{1 (x{1000}){1000}
""".split()  # noqa: SIM905 - easier to read than a list
IN_CLASSES = r"""
[ ] - ^ : [: :] [:alpha:] [:^digit:] [:a:] ( (?P<n> (?<n> ) > x a + 1 \] \[ \- \d \W \pN \p{Lu} \x41
\x{41} \101
""".split()  # noqa: SIM905 - easier to read than a list
AFTER_CLASSES = ("", "+", r"\C", "(?P<n>x)", "(?P<n>x)(?P<m>y)", "[a](?P<n>x)")
NAMES = """a b ab A orders orders.a 0 - _ aa aaa ba a] n x xy + { } {2} # \\ " / é K k s ß
C Q E z . a- a0""".split()  # noqa: SIM905 - easier to read than a list

OURS_ALONE = re.compile(r"(?<!\\)\{+[?*+{]|\\p\{Kawi\}|<é>", re.IGNORECASE)
"""Refused by RE2/J: an operator after a ``{`` that begins no repetition, scripts that Unicode has
since 2016, names of groups that are not ASCII."""
THEIRS_ALONE = re.compile(r"\\é|\{1000\}")
"""Refused by us: a backslash before a letter that is not ASCII, and patterns that need more than
1 MiB."""


def some_patterns() -> list[str]:
    draw = random.Random(7)
    joined = ("".join(draw.choices(PARTS, k=draw.randint(2, 5))) for _ in range(PATTERNS))
    classes = (
        f"[{''.join(draw.choices(IN_CLASSES, k=draw.randint(1, 6)))}]{draw.choice(AFTER_CLASSES)}"
        for _ in range(PATTERNS)
    )
    return [*PARTS, *joined, *classes]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="module")
def compared() -> list[tuple[str, str, str]]:
    """(pattern, what Kafka answers, what we answer). An answer is ``-`` if the pattern is refused,
    and otherwise has a digit for each name."""
    patterns = some_patterns()
    try:
        command = [need("java", JDK), "-cp", f"{kafka_jars()}/*", str(PROGRAM)]
    except Unavailable as lack:
        pytest.skip(str(lack))
    lines = "".join(" ".join(map(encoded, [each, *NAMES])) + "\n" for each in patterns)
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    theirs = done.stdout.decode().splitlines()
    return [(*both, ours(both[0])) for both in zip(patterns, theirs, strict=True)]


def ours(pattern: str) -> str:
    try:
        matches = compile_pattern(pattern).fullmatch
    except PatternRefusedError:
        return "-"
    return "".join(str(int(matches(name.encode()) is not None)) for name in NAMES)


def test_what_both_accept_matches_the_same_names(compared):
    both = [each for each in compared if "-" not in each[1:]]
    assert len(both) > PATTERNS / 5
    assert [each for each in both if each[1] != each[2]] == []


def test_hardly_any_pattern_is_refused_by_one_of_the_two_alone(compared):
    only_they = [pattern for pattern, theirs, ours in compared if theirs != "-" == ours]
    assert [pattern for pattern in only_they if not THEIRS_ALONE.search(pattern)] == []
    only_we = [pattern for pattern, theirs, ours in compared if theirs == "-" != ours]
    assert [pattern for pattern in only_we if not OURS_ALONE.search(pattern)] == []
