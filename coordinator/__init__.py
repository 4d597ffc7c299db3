"""A coordinator of consumer groups that speaks the Kafka protocol. Each part has its own folder."""
