"""Reads the event log for the pipeline, from its files (segments) or from the store of a running
daemon. Finds out which events are missing.
"""
