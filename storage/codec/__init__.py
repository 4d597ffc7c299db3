"""Records and events as bytes, and back."""
