"""Reads the settings of Spark that the user has chosen. Our settings must not override them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

_LINE = re.compile(r"\s*([^#\s=:][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
"""A line of ``spark-defaults.conf``, which is a file of Java properties."""


def user_settings(*, is_submitted: bool) -> dict[str, str]:
    """Return the settings of ``spark-submit``. If it was not used, return those in
    ``spark-defaults.conf`` and in ``PYSPARK_SUBMIT_ARGS``.
    """
    if is_submitted:
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    return {**_defaults(), **dict(_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))}


def _defaults() -> dict[str, str]:
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    place = Path(folder, "spark-defaults.conf")
    if not place.is_file():
        return {}
    lines = map(_LINE.fullmatch, place.read_text().splitlines())
    return {found[1]: found[2] for found in lines if found is not None}


_OPTIONS = {
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
"""Maps options of ``spark-submit`` to the settings that they set. Here are only settings for which
the pipeline has its own values.
"""


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each setting in the arguments of ``spark-submit``."""
    words = iter(shlex.split(text))
    for word in words:
        option, has_value, value = word.partition("=")
        if option not in ("--conf", "-c", *_OPTIONS):
            continue
        value = value if has_value else next(words, "")
        if option in _OPTIONS:
            yield _OPTIONS[option], value
        else:
            key, _, value = value.partition("=")
            yield key, value
