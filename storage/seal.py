"""Run the process that seals for a daemon (``storage.event_log.sealing.process``):

python -m groupkeeper.storage.seal
"""

from groupkeeper.storage.event_log.sealing.process import main
from groupkeeper.storage.open import rows_of

if __name__ == "__main__":
    main(rows_of)
