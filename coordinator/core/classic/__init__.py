"""Classic groups: one member, the leader, assigns the partitions."""
