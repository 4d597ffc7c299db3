"""The stores. Memory, SQLite and a host's own store belong to one process. PostgreSQL, ZooKeeper,
Consul (over a journal) and topics of Kafka are stores on a server. One process at a time uses such
a store.
"""
