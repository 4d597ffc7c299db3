"""One file an API: every version is turned into one request type, and its result into wire form."""
