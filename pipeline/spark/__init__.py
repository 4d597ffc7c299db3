"""Spark: its JVM, its session, and its errors."""
