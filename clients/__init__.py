"""Clients that need no coordinator: registered groups in ZooKeeper, and readers of single
partitions.
"""
