"""A registry of consumer groups in ZooKeeper, in the layout of Kafka's classic consumers."""
