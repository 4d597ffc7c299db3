"""One file per API. It turns every version into one request type, and the result into wire form."""
