"""Stores of durable topics, configs of groups and ends of partitions, for shards and handlers."""
