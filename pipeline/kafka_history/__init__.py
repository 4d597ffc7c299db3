"""Converts the content of a broker's `__consumer_offsets` into events."""
