"""Reads the event log for the pipeline: segments, the live log, and which events are missing."""
