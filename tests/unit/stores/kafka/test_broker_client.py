"""What a failure of TLS is told as."""

import ssl

import pytest

from kafka_quotas.stores.kafka.broker_client import tls_refusal


@pytest.mark.parametrize(
    ("reason", "verify_message", "told", "hint"),
    [
        ("CERTIFICATE_VERIFY_FAILED", "self-signed certificate", "self-signed certificate", "check the trust store"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "", "tlsv13 alert certificate required", "ssl.keystore.location"),
        ("WRONG_VERSION_NUMBER", "", "wrong version number", "most likely speaks plaintext"),
        ("", "", "odd", "check the trust store"),
    ],
)
def test_a_failure_of_tls_has_a_reason_and_a_hint(reason: str, verify_message: str, told: str, hint: str) -> None:
    error = ssl.SSLCertVerificationError(1, "odd") if verify_message else ssl.SSLError(1, "odd")
    error.reason = reason
    if isinstance(error, ssl.SSLCertVerificationError):
        error.verify_message = verify_message
    refusal = tls_refusal(error, server="broker:9093")
    assert refusal.message.startswith(f"no TLS connection to broker:9093: {told}")
    assert hint in (refusal.hint or "")
    assert refusal.code == "SSL_AUTHENTICATION_FAILED"
