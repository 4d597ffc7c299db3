"""A registry of consumer groups in ZooKeeper, in the layout of the classic consumers."""
