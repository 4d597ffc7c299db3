"""Pure functions from subscriptions and partitions to an assignment; one file an assignor."""
