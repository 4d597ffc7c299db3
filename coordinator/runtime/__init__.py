"""Runs shards over a storage: acquires their leases, loads them, writes their records in shared
appends, and runs their timers.
"""
