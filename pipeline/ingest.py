"""The job that brings sealed segments into bronze, each once, as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.bronze import stream_segments, write_batch
from pipeline.lake import Lake

CONTINUOUS_INTERVAL: Final = "60 seconds"
"""How often the continuous trigger looks for segments; the daemon seals about as often."""

AfterBatch = Callable[[], object]


def start_ingest(
    spark: SparkSession,
    log_dir: str,
    lake: Lake,
    *,
    continuous: bool = False,
    after_batch: AfterBatch = lambda: None,
) -> StreamingQuery:
    """Start the stream. It ends when it has read what is there, or never if ``continuous``.

    ``after_batch`` is called once a batch is in bronze, before the stream takes note of it: what it
    does must be fit to be done again.
    """

    def write(events: DataFrame, batch_id: int) -> None:
        write_batch(events, lake, batch_id)
        after_batch()

    writer = stream_segments(spark, log_dir).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", lake.checkpoint).queryName("groupkeeper-bronze")
    if continuous:
        return writer.trigger(processingTime=CONTINUOUS_INTERVAL).start()
    return writer.trigger(availableNow=True).start()


def ingest(spark: SparkSession, log_dir: str, lake: Lake) -> None:
    """Bring in every segment that is there now."""
    start_ingest(spark, log_dir, lake).awaitTermination()
