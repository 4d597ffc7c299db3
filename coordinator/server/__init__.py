"""The Kafka port: listener, connections, their limits."""
