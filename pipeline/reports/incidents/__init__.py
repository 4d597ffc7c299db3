"""Finds incidents in the tables by rules, and reports them. An incident is a problem that an
operator should look at.
"""
