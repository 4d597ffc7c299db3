"""The Kafka wire protocol: bytes and types, nothing of groups."""
