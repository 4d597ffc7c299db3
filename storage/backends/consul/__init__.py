"""A store in Consul: the calls of ``storage.backends.journal.driver`` as transactions on keys."""
