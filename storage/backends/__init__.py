"""Storage backends: memory, SQLite, a store of the host, and stores that several processes share
(PostgreSQL and ZooKeeper, over a journal).
"""
