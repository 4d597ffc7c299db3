"""The rules that decide which process may write to a store that several processes share."""
