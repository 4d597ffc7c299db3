"""A store that several processes share. Each process appends to a journal of its own."""
