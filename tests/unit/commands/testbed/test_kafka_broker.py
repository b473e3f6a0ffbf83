"""Users of a broker that is started for a load test: how it knows them, and how they log in."""

from pathlib import Path

import pytest

from kafka_quotas.commands.testbed.kafka_broker import PLAINTEXT, KafkaServerError, broker_security
from kafka_quotas.loadtest.scenario.model import Security

NOWHERE = Path("/nonexistent/java")


def test_plaintext_needs_nothing(tmp_path: Path) -> None:
    assert broker_security(Security.PLAINTEXT, ["alice"], folder=tmp_path, java=NOWHERE) is PLAINTEXT


@pytest.mark.parametrize(
    ("security", "mechanism"), [(Security.SASL_PLAIN, "PLAIN"), (Security.SASL_SCRAM, "SCRAM-SHA-256")]
)
def test_every_user_has_a_password_that_the_broker_knows(security: Security, mechanism: str, tmp_path: Path) -> None:
    made = broker_security(security, ["bob", "alice", "bob"], folder=tmp_path, java=NOWHERE)

    assert made.common == {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    assert sorted(made.by_user) == ["alice", "bob"]
    told_to_broker = " ".join([*made.settings.values(), *made.scram])
    for user, properties in made.by_user.items():
        login = dict(properties)
        assert login["sasl.username"] == user
        assert login["sasl.password"] in told_to_broker
        assert login["sasl.password"] not in repr(made)
    assert made.by_user["alice"] != made.by_user["bob"]


def test_certificates_need_the_tool_that_comes_with_java(tmp_path: Path) -> None:
    with pytest.raises(KafkaServerError, match="certificates can't be made"):
        broker_security(Security.TLS, ["CN=alice"], folder=tmp_path, java=NOWHERE)
