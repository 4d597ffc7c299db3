"""What a run on this machine makes, to be compared with a run elsewhere."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipeline.conftest import Site

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def here(spark, tmp_path) -> Site:
    """Two days of a history, with the tables that a run on this machine makes of it."""
    from tests.pipeline.conftest import a_site
    from tests.pipeline.histories import a_history

    site = a_site(spark, tmp_path / "here")
    site.seal(a_history(12, days=2, steps=15).events, segment_events=40)
    assert len(site.run().published) == 2
    return site
