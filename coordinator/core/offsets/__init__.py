"""Offsets in the core: commit, fetch, retention, deletion."""
