"""The event log in Spark: tables, reports, and offsets as they once were.

Nothing here is imported by the daemon; the extra `pipeline` brings what it needs
(docs/start/installing.md).
"""
