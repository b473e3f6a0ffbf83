"""`python -m kafka_quotas.cli.refresh_names OPTIONS`: asks a store for its names on behalf of completion."""

import json
import signal
import sys
from contextlib import suppress

from kafka_quotas.cli.stored_names import GIVE_UP_S, StoreOptions, refresh
from kafka_quotas.core.errors import KafkaQuotasError

if __name__ == "__main__":
    signal.setitimer(signal.ITIMER_REAL, GIVE_UP_S)  # whatever a server does, nothing is left behind
    with suppress(KafkaQuotasError, OSError):
        refresh(StoreOptions(**json.loads(sys.argv[1])))
