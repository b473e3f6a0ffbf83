"""`python -m kafka_quotas` is `kafka-quotas`."""

from kafka_quotas.cli.start import end_process, main

exit_code = main()
# Python notes an interrupt inside `exec`, which makes every dataclass, and would end a program run by `-m` by SIGINT
# though `main` has handled it. The next `exec` drops the note.
exec("")  # noqa: S102
end_process(exit_code)
