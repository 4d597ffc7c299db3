"""The tables: events (bronze), facts about groups (silver) and summaries (gold). Also the lock that
makes sure that only one process writes them.
"""
