"""groupkeeper: a consumer-group coordinator that speaks the Kafka protocol."""
