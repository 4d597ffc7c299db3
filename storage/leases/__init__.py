"""The rules that decide which process may write to a store on a server."""
