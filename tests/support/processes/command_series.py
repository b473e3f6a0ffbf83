"""Several commands of the program in one process, one after the other.

    python -m tests.support.processes.command_series '["pipeline", "usage", ...]' '["compare", FOLDER]' ...

Spark's Java is started once for all of them. The exit code is that of the first command that fails. `compare` is the
comparison of `spark_comparison` on a session of this machine alone. After `large` logs that only Hadoop reaches are
large above some number of bytes, so that Spark reads small ones by line. JSON that a command prints has to follow its
published schema.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

from tests.support.pipeline.spark_comparison import compare
from tests.support.processes.output_contract import check_output

from kafka_quotas.cli.main import main
from kafka_quotas.cli.start import end_process
from kafka_quotas.pipeline.ingest import plan

if __name__ == "__main__":
    for arguments in map(json.loads, sys.argv[1:]):
        if arguments[0] == "compare":
            compare(Path(arguments[1]))
            continue
        if arguments[0] == "large":
            plan.LARGEST_CONTENT_BYTES = int(arguments[1])  # type: ignore[misc]
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(arguments)
        check_output(arguments, out.getvalue())
        sys.stdout.write(out.getvalue())
        sys.stdout.flush()
        if code:
            end_process(code)
    end_process(0)
