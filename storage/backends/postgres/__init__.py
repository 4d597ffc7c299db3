"""A store in PostgreSQL: the calls of ``storage.backends.journal.driver`` as SQL statements."""
