"""Logins at MSK: what is signed, by AWS's published example and its own signer, and with whose credentials."""

import base64
import datetime as dt
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from kafka_quotas.core.errors import ProtocolError, StoreRefusedError, UsageError
from kafka_quotas.stores.kafka.broker_client import kafka_access
from kafka_quotas.stores.security import msk
from kafka_quotas.stores.security.librdkafka import librdkafka_properties
from kafka_quotas.stores.security.sasl import sasl_login

BROKER = "b-1.demo.k3xyz.c2.kafka.eu-west-1.amazonaws.com"
IAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NOW = dt.datetime(2026, 11, 27, 12, 0, 0, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _own_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("PROFILE", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: NOW.replace(tzinfo=None))
    msk._identity.cache_clear()
    yield
    msk._identity.cache_clear()


@pytest.fixture
def in_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def payload(properties: dict[str, str] = IAM, host: str = BROKER) -> dict[str, str]:
    found: dict[str, str] = json.loads(next(sasl_login(properties).begin(host)))
    return found


def signature(*, scope: str, stamp: str, host: str, path: str, query: dict[str, str], body: str) -> str:
    """Signature Version 4 of a request by its query, from the steps in AWS's documentation."""
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    ordered = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    request = f"GET\n{path}\n{ordered}\nhost:{host}\n\nhost\n{body}"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    return hmac.digest(key, text.encode(), "sha256").hex()


def test_the_oracle_makes_the_signature_that_aws_published() -> None:
    """AWS, "Authenticating requests: using query parameters", the example of a presigned URL."""
    scope, stamp = "20130524/us-east-1/s3/aws4_request", "20130524T000000Z"
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": "86400",
        "X-Amz-SignedHeaders": "host",
    }
    host = "examplebucket.s3.amazonaws.com"
    found = signature(scope=scope, stamp=stamp, host=host, path="/test.txt", query=query, body="UNSIGNED-PAYLOAD")
    assert found == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


@pytest.mark.parametrize("token", [None, "a/token+of==a session"])
def test_the_payload_is_signed_as_published(
    in_variables: None, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    scope, stamp = "20261127/eu-west-1/kafka-cluster/aws4_request", "20261127T120000Z"
    query = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
        **({} if token is None else {"X-Amz-Security-Token": token}),
    }
    nothing = hashlib.sha256(b"").hexdigest()
    assert payload() == {
        "version": "2020_10_22",
        "host": BROKER,
        "user-agent": "kafka-quotas",
        **{name.lower(): value for name, value in query.items()},
        "x-amz-signature": signature(scope=scope, stamp=stamp, host=BROKER, path="/", query=query, body=nothing),
    }


def test_the_token_for_oauthbearer_is_that_of_aws_own_signer(in_variables: None) -> None:
    servers = {"bootstrap.servers": f"{BROKER}:9098,other:9098"}
    properties = librdkafka_properties({**IAM, **servers, "sasl.jaas.config": f"{MODULE};", "client.id": "me"})
    fetch = properties.pop("oauth_cb")
    assert properties == {
        "security.protocol": "SASL_SSL",
        **servers,
        "sasl.mechanism": "OAUTHBEARER",
        "client.id": "me",
    }
    token, ends_s = fetch("")
    theirs, _ = MSKAuthTokenProvider.generate_auth_token("eu-west-1")
    assert without_agent(token) == without_agent(theirs)
    assert ends_s > dt.datetime.now(dt.UTC).timestamp() + 800


def without_agent(token: str) -> dict[str, Any]:
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    found = parse_qs(url.query)
    del found["User-Agent"]
    return {"host": url.netloc, **found}


@pytest.mark.parametrize(
    ("host", "variables", "region"),
    [
        (BROKER, {"AWS_REGION": "us-east-1"}, "eu-west-1"),
        ("boot-ab.c3.kafka-serverless.ap-southeast-2.amazonaws.com", {}, "ap-southeast-2"),
        ("b-2.demo.x.c1.kafka.cn-north-1.amazonaws.com.cn", {}, "cn-north-1"),
        ("kafka.example.com", {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-west-2"}, "us-east-1"),
        ("kafka.example.com", {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
    ],
)
def test_the_region_is_in_the_name_or_a_variable(
    in_variables: None, monkeypatch: pytest.MonkeyPatch, host: str, variables: dict[str, str], region: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert payload(host=host)["x-amz-credential"].split("/")[2] == region


def test_a_region_that_nothing_tells_is_refused(in_variables: None) -> None:
    with pytest.raises(UsageError, match=r"the AWS region of kafka\.example\.com is unknown"):
        payload(host="kafka.example.com")


def test_credentials_are_those_of_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sections = (
        f"[{name}]\naws_access_key_id={name.upper()}\naws_secret_access_key=x\n" for name in ("default", "team")
    )
    (tmp_path / "credentials").write_text("".join(sections))
    assert payload()["x-amz-credential"].startswith("DEFAULT/")
    assert payload({**IAM, "sasl.jaas.config": f'{MODULE} awsProfileName="team";'})["x-amz-credential"][:5] == "TEAM/"
    msk._identity.cache_clear()
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert payload()["x-amz-credential"].startswith("TEAM/")


@pytest.mark.parametrize(
    ("options", "problem", "hint"),
    [
        ("", "there are no AWS credentials", "AWS_ACCESS_KEY_ID"),
        ('awsProfileName="nobody"', r"no AWS credentials: .*\(nobody\) could not be found$", "AWS_PROFILE"),
        ('awsRoleArn="arn:aws:iam::1:role/x"', "awsRoleArn is not supported", "role_arn"),
    ],
)
def test_a_login_without_credentials_is_refused_before_it_connects(options: str, problem: str, hint: str) -> None:
    properties = {**IAM, "sasl.jaas.config": f"{MODULE} {options};"}
    for refused in (kafka_access, librdkafka_properties):
        with pytest.raises(UsageError, match=problem) as error:
            refused(properties)
        assert hint in (error.value.hint or "")


def test_half_a_key_in_the_variables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    with pytest.raises(UsageError, match="no AWS credentials: Partial credentials found in env"):
        sasl_login(IAM)


@pytest.mark.parametrize("text", ["soon", "2020-01-01T00:00:00Z"])
def test_an_end_of_the_credentials_that_is_none_or_past_is_refused(
    in_variables: None, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", text)
    with pytest.raises((UsageError, StoreRefusedError), match="no AWS credentials: "):
        payload()


def test_a_role_that_can_not_be_assumed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    profile = "[profile r]\nrole_arn=arn:aws:iam::1:role/x\nsource_profile=s\nregion=eu-west-1\n"
    keys = "[profile s]\naws_access_key_id=AKID\naws_secret_access_key=s3cret\n"
    (tmp_path / "config").write_text(profile + keys)
    with pytest.raises(StoreRefusedError, match="no AWS credentials: Could not connect to the endpoint URL") as error:
        payload({**IAM, "sasl.jaas.config": f"{MODULE} awsProfileName=r;"})
    assert "s3cret" not in error.value.message


def test_the_callback_handler_of_the_java_library_is_known(in_variables: None) -> None:
    handler = "sasl.client.callback.handler.class"
    assert kafka_access({**IAM, handler: msk.CLIENT_HANDLER}).login is not None
    for refused in (kafka_access, librdkafka_properties):
        with pytest.raises(UsageError, match=r"callback\.handler\.class is not supported"):
            refused({**IAM, handler: "com.example.Handler"})


def test_a_broker_that_confirms_nothing_has_not_taken_it(in_variables: None) -> None:
    login = sasl_login(IAM)
    assert SECRET not in repr(login)
    for answer, problem in ((b'{"version":"2020_10_22","request-id":"1"}', StopIteration), (b"", ProtocolError)):
        tokens = login.begin(BROKER)
        next(tokens)
        with pytest.raises(problem):
            tokens.send(answer)
