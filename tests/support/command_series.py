"""Several commands of the program in one process, one after the other; run as a process.

    python -m tests.support.command_series '["pipeline", "usage", ...]' '["pipeline", "replay", ...]'

Spark's Java is started once for all of them. The exit code is that of the first command that fails.
"""

import json
import sys

from kafka_quotas.cli.main import main

if __name__ == "__main__":
    for arguments in sys.argv[1:]:
        if code := main(json.loads(arguments)):
            sys.exit(code)
