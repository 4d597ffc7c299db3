"""``groupkeeper zookeeper``: groups that are registered in ZooKeeper, and their migration."""
