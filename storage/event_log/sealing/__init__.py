"""Sealing: rows of the event log become files, and old files are deleted."""
