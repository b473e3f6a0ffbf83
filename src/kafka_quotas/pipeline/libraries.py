"""The libraries of the extra `spark`, which whoever only sets quotas does without."""

from importlib.util import find_spec
from typing import Final

from kafka_quotas.core.errors import UsageError

LIBRARIES: Final = ("numpy", "pyarrow", "orjson")
"""What every job needs on any engine; those that Spark runs need PySpark as well."""


def require_libraries(*names: str) -> None:
    """Check that libraries are installed, by default those of every job.

    Raises:
        UsageError: One is not; it says what to install.
    """
    missing = [name for name in names or LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the pipeline needs {' and '.join(missing)}, not installed here", hint="pip install 'kafka-quotas[spark]'"
        )
