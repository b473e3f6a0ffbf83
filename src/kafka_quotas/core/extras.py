"""The optional parts of the installation, named where one is missing."""

from importlib.util import find_spec

from kafka_quotas.core.errors import UsageError

_DISTRIBUTIONS = {
    "jinja2": "Jinja",
    "kafka": "kafka-python",
    "prometheus_client": "prometheus-client",
    "puresasl": "pure-sasl",
}
"""The name by which a library is known, where its module has another."""


def require_extra(extra: str, *modules: str, needed_by: str) -> None:
    """Check that the libraries of an extra can be imported, before the work that needs them begins.

    Args:
        extra: The name of the extra in `pip install 'kafka-quotas[EXTRA]'`.
        modules: The top-level modules of the libraries.
        needed_by: Who needs them, as the beginning of a sentence: `metrics need`.

    Raises:
        UsageError: One is not installed. The hint has the command that installs the extra.
    """
    missing = [_DISTRIBUTIONS.get(module, module) for module in modules if find_spec(module) is None]
    if missing:
        names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise UsageError(
            f"{needed_by} {names}, not installed here",
            hint=f"pip install 'kafka-quotas[{extra}]'",
        )
