"""Clients that need no coordinator: a registry in ZooKeeper, and readers of single partitions."""
