"""Code that the stores of keys and values share: ZooKeeper and Consul."""
