"""A store on a server, which processes use one after another. Each process appends to a journal of
its own.
"""
