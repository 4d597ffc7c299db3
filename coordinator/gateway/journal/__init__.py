"""The journal of transactions: a topic of ours in the upstream that shows how each transaction
ends.
"""
