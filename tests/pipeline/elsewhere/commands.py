"""A run elsewhere: the options of its command, and its tables beside those of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from groupkeeper.pipeline.tables.columns import GOLD_SCHEMAS, SILVER_SCHEMAS
from groupkeeper.pipeline.tables.lake import Lake
from tests.pipeline.conftest import SMALL, SMALL_DATA, Site

TABLES: Final = [
    *(f"silver/{name}" for name in SILVER_SCHEMAS),
    *(f"gold/{name}" for name in GOLD_SCHEMAS),
]


def options(settings: Mapping[str, str]) -> list[str]:
    """Return the options of a command. Spark writes the tables, with settings for small data."""
    quick = {key: value for key, value in SMALL_DATA.items() if key != SMALL}
    every = {**quick, **settings}
    return [word for key, value in every.items() for word in ("--conf", f"{key}={value}")]


def differences(here: Site, tables: Path | str) -> list[str]:
    """Return the tables that a run elsewhere has made otherwise."""
    there = Site(here.spark, here.log_dir, Lake(str(tables)))
    return [table for table in TABLES if there._rows(table) != here._rows(table)]
