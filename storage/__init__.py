"""Storage of offsets and groups: the OffsetStorage contract and its backends."""
