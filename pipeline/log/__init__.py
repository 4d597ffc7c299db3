"""Reads the event log for the pipeline: its files (segments), the log of a running daemon, and
which events are missing.
"""
