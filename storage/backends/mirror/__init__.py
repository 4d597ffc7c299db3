"""Copies of the groups for programs that read ZooKeeper or Consul."""
