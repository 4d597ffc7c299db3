"""Gateway mode: listeners in front of the brokers of another Kafka cluster, the *upstream*."""
