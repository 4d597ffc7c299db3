"""A store in ZooKeeper: the calls of ``storage.backends.journal.driver``, done with znodes."""
