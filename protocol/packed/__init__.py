"""The hot messages by plain struct code: requests as plain tuples, and replies as whole frames.

A hot message is one of the few that clients send most often. A reading function knows only the
common form of a request. It does not read a null, a tag, text that is not UTF-8, an early end, or a
count beyond the budget. If it finds one of these, ``protocol.reader`` reads the request again from
the start. So this package accepts and refuses the same bytes as ``protocol.reader``, for the same
reasons. It never reserves more memory than the size of the frame.

Topic ids are in Kafka's printed form, 22 characters of URL-safe base64. The zero id is "".
"""
