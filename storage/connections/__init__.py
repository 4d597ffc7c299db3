"""Connections to outside servers and their retries; stores and clients share them."""
