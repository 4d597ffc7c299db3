"""Connections to other servers, with retries. Stores and clients share them."""
