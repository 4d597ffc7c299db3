"""The assignors of hosts: pure functions from subscriptions and partitions to an assignment. Each
has its own file.
"""
