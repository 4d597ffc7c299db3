"""Every transcript still says what it said (language: tests/helpers/core/transcript.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.core.transcript import run

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path, request):
    written = path.read_text()
    assert not written.startswith(">"), "a transcript opens with what it proves"
    now = run(written)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(now)
    else:
        assert now == written


def test_there_are_transcripts():
    assert len(FILES) >= 10
