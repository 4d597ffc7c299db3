"""The file with the password of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.password_file import read_password


def test_the_password_is_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" s:e/cret\xc3\xa9 \r\nmore\n")
    assert read_password(str(file)) == " s:e/creté "
    assert read_password("") is None


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "is empty"), (b"\nx", "is empty"), (b"\xff", "is not UTF-8")],
)
def test_a_file_without_a_password_is_refused(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StoreRefused, match=rf"^storage\.password_file: .*{words}"):
        read_password(str(file))
