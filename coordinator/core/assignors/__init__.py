"""Assignors: pure functions from subscriptions and partitions to an assignment. One file
for each.
"""
