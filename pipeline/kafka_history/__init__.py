"""Copies the topic `__consumer_offsets` of a Kafka cluster. Converts its records into events."""
