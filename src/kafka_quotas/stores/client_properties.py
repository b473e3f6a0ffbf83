"""Which of Kafka's client properties can't be honoured: silently left out they would change who is trusted, or asked.

Properties that only tune a Java client (`retries`, `send.buffer.bytes` and the like) are ignored.
"""

from collections.abc import Mapping

from kafka_quotas.core.errors import UsageError

_USUAL: Mapping[str, tuple[str, ...]] = {
    "config.providers": (),
    "security.providers": (),
    "ssl.engine.factory.class": (),
    "ssl.provider": (),
    "ssl.cipher.suites": (),
    "ssl.keymanager.algorithm": ("SunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
    "sasl.login.class": (),
    "sasl.client.callback.handler.class": (),
}
"""Properties that are not supported, with the values that mean no more than leaving them out."""
_PREFIXES = {"ssl.": ("SSL", "SASL_SSL"), "sasl.": ("SASL_PLAINTEXT", "SASL_SSL")}


def refuse_unsupported(properties: Mapping[str, str], *, protocol: str) -> None:
    """Nothing, where every property that counts with this `security.protocol` can be honoured.

    Raises `UsageError` with the name of the first that can't.
    """
    for name, usual in _USUAL.items():
        value = properties.get(name, "").strip()
        protocols = next((found for prefix, found in _PREFIXES.items() if name.startswith(prefix)), (protocol,))
        if value and value not in usual and protocol in protocols:
            hint = f"it may be {' or '.join(usual)}" if usual else "leave it out, or use Kafka's own tools"
            raise UsageError(f"{name} is not supported", hint=hint)
