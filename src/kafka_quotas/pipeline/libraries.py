"""The libraries of the extra `spark`, which whoever only sets quotas does without."""

from importlib.util import find_spec

from kafka_quotas.core.errors import UsageError


def require_libraries(*names: str) -> None:
    """Nothing, if the libraries are installed. Raises `UsageError` that tells what to install where one is not."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the pipeline needs {' and '.join(missing)}, not installed here", hint="pip install 'kafka-quotas[spark]'"
        )
