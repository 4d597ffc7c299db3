"""The hot messages by plain struct code: requests as plain tuples, and replies as whole frames.

A function that reads knows only the common form of a request. Anything else (a null, a tag, text
that is not UTF-8, an early end, a count beyond the budget) makes ``protocol.reader`` read the
request again from the start and decide. So both accept and refuse the same bytes for the same
reasons. No more memory than the size of the frame is ever reserved.

Topic ids are in Kafka's printed form, 22 characters of URL-safe base64, "" for the zero id.
"""
