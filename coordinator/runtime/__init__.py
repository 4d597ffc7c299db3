"""Runs shards over a storage: it acquires their leases, loads them, groups their writes and keeps
their timers.
"""
