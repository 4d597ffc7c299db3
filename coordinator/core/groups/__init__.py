"""The common part of all types of groups: members, offsets, counts."""
