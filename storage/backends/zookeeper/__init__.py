"""A store in ZooKeeper: the calls of ``storage.backends.journal.driver`` as operations on znodes."""
