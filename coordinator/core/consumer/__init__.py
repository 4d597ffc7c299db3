"""Consumer groups: the coordinator assigns the partitions (docs/spec/consumer-groups.md)."""
