"""Spark: its JVM, its session, and why it failed."""
