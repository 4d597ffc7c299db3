"""The Kafka wire protocol: bytes and types. It knows nothing of groups."""
