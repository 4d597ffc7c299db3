"""The Kafka wire protocol: bytes and types. It contains nothing about groups."""
