"""Members without a coordinator: a registry in ZooKeeper, and readers of single partitions."""
