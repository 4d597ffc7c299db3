"""The assignors of hosts that embed us: pure functions from subscriptions and partitions to an
assignment. With the daemon, the leader of each classic group assigns.
"""
