"""Readers of single partitions, and groups of them in Consul."""
