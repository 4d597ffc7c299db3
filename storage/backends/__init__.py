"""The stores. Memory, SQLite and a host's own store belong to one process. PostgreSQL, ZooKeeper and
Consul (over a journal) and topics of Kafka are stores on a server: one process at a time uses them.
"""
