"""The tables: events (bronze), facts about groups (silver), summaries (gold), and the lock of their
writer.
"""
