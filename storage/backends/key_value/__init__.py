"""What the stores of keys and values, ZooKeeper and Consul, have in common."""
