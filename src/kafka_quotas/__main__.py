"""`python -m kafka_quotas` is `kafka-quotas`."""

import sys

from kafka_quotas.cli.start import main

exit_code = main()
# Python notes an interrupt inside `exec`, which makes every dataclass, and would end a program run by `-m` by SIGINT
# though `main` has handled it. The next `exec` drops the note.
exec("")  # noqa: S102
sys.exit(exit_code)
