"""The command line in a process that counts its objects when it gets SIGUSR2: COUNTS_FILE ARGUMENT..."""

import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from kafka_quotas.cli.start import main


def count_objects(path: Path) -> None:
    """Write how many objects of each type there are that were made since the start.

    The file is replaced whole.
    """
    gc.collect()
    counts = Counter(type(each).__name__ for each in gc.get_objects())
    written = path.with_suffix(".new")
    written.write_text(json.dumps(counts))
    written.rename(path)


if __name__ == "__main__":
    target = Path(sys.argv.pop(1))
    signal.signal(signal.SIGUSR2, lambda number, frame: count_objects(target))
    sys.argv[0] = "kafka-quotas"
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
