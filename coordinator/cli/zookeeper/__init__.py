"""The commands of the registry in ZooKeeper."""
