"""Several commands of the program in one process, one after the other.

    python -m tests.support.processes.command_series '["pipeline", "usage", ...]' '["compare", FOLDER]' ...

Spark's Java is started once for all of them. The exit code is that of the first command that fails. `compare` is the
comparison of `spark_comparison` on a session of this machine alone.
"""

import json
import sys
from pathlib import Path

from tests.support.pipeline.spark_comparison import compare

from kafka_quotas.cli.main import main
from kafka_quotas.cli.start import end_process

if __name__ == "__main__":
    for arguments in map(json.loads, sys.argv[1:]):
        if arguments[0] == "compare":
            compare(Path(arguments[1]))
        elif code := main(arguments):
            end_process(code)
    end_process(0)
