"""The classic protocol: joining, membership, rebalance, and what an administrator sees."""
