"""Encoding of records and events as bytes, and decoding."""
