"""Clients that need no coordinator: consumer groups in ZooKeeper, and readers of single partitions.
Readers can also form groups, which share partitions through Consul.
"""
