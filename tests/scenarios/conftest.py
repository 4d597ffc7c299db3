"""``pytest tests/scenarios --rewrite`` writes what the transcripts say now into their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Commit a rewritten transcript only if you understand what changed it."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the transcripts")
