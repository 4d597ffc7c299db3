"""Where offsets and groups are kept: the OffsetStorage contract and its backends."""
