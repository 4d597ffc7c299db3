"""Regular expressions over names of topics, with the syntax and the limits of RE2.

Kafka uses RE2/J, and we use RE2 itself (google-re2). Both match in linear time.
docs/understand/differences.md lists the few differences.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, Protocol

MAX_PATTERN_CHARS: Final = 4_096
"""The longest pattern. A list of names joined by ``|`` should never need more."""
MAX_PATTERN_BYTES: Final = 1 << 20
"""The memory of one compiled pattern. The slowest pattern that we tried compiles in 9 ms with this
limit, and in 71 ms with RE2's own limit of 8 MiB."""
NOT_INSTALLED: Final = (
    "subscriptions by pattern need the package google-re2 in the coordinator: install groupkeeper "
    "there with its extra `patterns`"
)

_CHARACTER: Final = r"(?:\\(?:x\{[^}]*+\}|x..|[0-7]{1,3}+|.)|[^\]\\])"
_RANGE: Final = rf"{_CHARACTER}(?:-{_CHARACTER})?+"
_TOKENS: Final = re.compile(
    rf"""\\Q.*?(?:\\E|\Z)                                    # taken literally
      | \\(?P<escaped>.)
      | \[\^?(?:\](?:-{_CHARACTER})?+)?+                     # a class of characters
        (?:\[:\^?\w++:\]|(?P<nameless>\[:(?=\]))|\\[pP](?:\{{[^}}]*+\}}|.)|\\[dDsSwW]|{_RANGE})*+\]
      | \(\?P?<(?P<group>[^>]*)>
    """,
    re.VERBOSE | re.DOTALL,
)
"""Finds the escapes and the names of groups in a valid pattern, for ``_refuse_what_kafka_refuses``.
Quoted text and classes of characters are also tokens, so that nothing in them is found. The end of
a range may be ``[``, so ``[+-[:a:]`` contains no class of characters by name. RE2/J takes ``[:]``
for such a class, and finds no name."""


class PatternRefusedError(Exception):
    """A pattern cannot be used. The message says why, for the client."""


class Matcher(Protocol):
    """A compiled pattern."""

    def fullmatch(self, name: bytes) -> object:
        """Return a match of the whole name, or None if the pattern does not match the whole
        name.
        """
        ...


def compile_pattern(pattern: str) -> Matcher:
    """Return the compiled pattern. Raises PatternRefusedError if the pattern cannot be used. RE2's
    module caches the last 128 patterns.
    """
    re2 = _re2()
    if re2 is None:
        raise PatternRefusedError(NOT_INSTALLED)
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternRefusedError(
            f"a pattern has {MAX_PATTERN_CHARS} characters at most, and this one {len(pattern)}"
        )
    try:
        compiled: Matcher = re2.compile(pattern, _options())
    except UnicodeEncodeError as error:
        raise PatternRefusedError("it is not valid Unicode") from error
    except re2.error as error:
        raise PatternRefusedError(_text_of(error)) from error
    _refuse_what_kafka_refuses(pattern)
    return compiled


@cache
def _re2() -> Any:
    # Imported at the first pattern: the package is an extra, and most daemons see no pattern.
    try:
        import re2
    except ImportError:
        return None
    return re2


@cache
def _options() -> Any:
    options = _re2().Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False  # they go to stderr, in a format of their own
    options.never_capture = True  # nobody reads the groups of a match
    return options


def _text_of(error: Exception) -> str:
    (reason,) = error.args
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _refuse_what_kafka_refuses(pattern: str) -> None:
    """Refuse patterns that RE2 accepts and RE2/J does not: those that match a single byte, those
    with two groups of the same name, and those with ``[:]`` in a class of characters.
    """
    groups: set[str] = set()
    for token in _TOKENS.finditer(pattern):
        if token["escaped"] == "C":
            raise PatternRefusedError(r"invalid escape sequence: \C")
        if token["nameless"] is not None:
            raise PatternRefusedError("invalid character class range: [:]")
        group = token["group"]
        if group is not None and group in groups:
            raise PatternRefusedError(f"duplicate capture group name: {group}")
        groups.add(group)
