"""The stores. Memory, SQLite and a host's own store belong to one process. Several processes can
share PostgreSQL, ZooKeeper and Consul (over a journal), and topics of Kafka.
"""
