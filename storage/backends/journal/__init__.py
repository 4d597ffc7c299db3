"""A store on a server, which processes use one after another. Each process appends to its own
journal.
"""
