"""Text that others chose, on its way to a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.cli.event_view import line_of
from groupkeeper.coordinator.cli.failing import fail
from groupkeeper.coordinator.cli.plain_text import plain, plain_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("billing", "billing"),
        ("a b\\c", "a b\\c"),
        ("größe 購読 🙂", "größe 購読 🙂"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31mRED", "\\x1b[31mRED"),
        ("\x00\x7f\x9b2J", "\\x00\\x7f\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_acts_instead_of_showing_is_escaped_and_the_rest_left_alone(text, shown):
    assert plain(text) == shown


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_that_can_be_encoded_and_has_no_escape(text):
    shown = plain(text)
    assert len(shown.splitlines()) <= 1
    assert shown.encode().decode() == shown
    assert plain(shown) == shown


def test_line_breaks_of_our_own_messages_stay():
    assert plain_lines("first \x1b[2J\nsecond\r") == "first \\x1b[2J\nsecond\\r"


def test_an_event_is_one_line_whatever_its_names_are():
    event = {"ts_ms": 0, "kind": "member_leave", "group": "a\nb", "member_id": "m\x1b[31m"}
    event |= {"client_id": "c\r", "client_host": "/::1", "reason": "bye\x07"}
    _, _, said = line_of(event, with_group=True)
    assert said == "a\\nb  c\\r at /::1 as m\\x1b[31m (bye\\x07)"


def test_a_failure_sends_no_escapes_of_others(capsys):
    with pytest.raises(Exception, match="1"):
        fail("127.0.0.1:9: end of \x1b]0;owned\x07 0: REQUEST_TIMED_OUT", 1)
    said = capsys.readouterr().err
    assert said == "groupkeeper: 127.0.0.1:9: end of \\x1b]0;owned\\x07 0: REQUEST_TIMED_OUT\n"
