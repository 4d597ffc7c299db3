"""Starts Spark's JVM, makes the Spark session of a job, and describes errors of Spark."""
