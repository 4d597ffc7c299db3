"""The event log: segments, who writes, keeps, checks and reads them."""
