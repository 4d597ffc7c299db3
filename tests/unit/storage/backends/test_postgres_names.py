"""Names as texts of PostgreSQL, and its URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.storage.backends.postgres.names import MAX_KEY_BYTES, escaped, key_of, unescaped
from groupkeeper.storage.backends.postgres.url import parse_url

names = st.text(st.sampled_from("\\\0#0a\u00e9") | st.characters(codec="utf-8"))


@given(names)
def test_every_name_comes_back_and_has_no_u_0000(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert "\0" not in escaped(name)


@given(names, names)
def test_different_names_have_different_keys(one: str, other: str) -> None:
    assert (key_of(one) == key_of(other)) is (one == other)


@pytest.mark.parametrize("name", ["billing", "", ".", "a/b", "\u00e9"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert key_of(name) == escaped(name) == name


@pytest.mark.parametrize("char", ["x", "\0", "\\", "\u00e9", "\U0001f600"])
def test_long_names_fit_an_index_and_stay_apart(char: str) -> None:
    name = char * 32_767
    assert len(key_of(name).encode()) <= MAX_KEY_BYTES
    assert key_of(name) != key_of(name + char)


def test_a_password_of_its_own_is_in_no_text() -> None:
    url = parse_url("postgresql://me@host/db", "secret")
    assert (url.password, "secret" in url.dsn + url.name) == ("secret", False)


def test_a_url_has_a_schema_of_ours_and_a_name_without_a_password() -> None:
    url = parse_url("postgresql://me:secret@host:5433/db?schema=s&sslmode=require")
    assert url.dsn == "postgresql://me:secret@host:5433/db?sslmode=require"
    assert (url.schema, url.name) == ("s", "postgresql://host:5433/db")
    assert parse_url("postgres://host/db").schema == "groupkeeper"
