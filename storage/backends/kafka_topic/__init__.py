"""A store in the topics of a Kafka cluster."""
