"""Runs the shards of a coordinator: acquires their leases, loads them from the store, writes their
records in shared appends, and runs their timers.
"""
