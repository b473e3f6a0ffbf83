"""Client properties: SASL with tokens, and what can't be honoured, refused by its name and without any secret."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.stores.kafka.broker_client import kafka_access
from kafka_quotas.stores.security.sasl import ENDPOINT, parse_jaas, sasl_login, token_source

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LOGIN = "sasl.jaas.config"
HANDLER = "sasl.login.callback.handler.class"
SECRET = "s3cret"


def source(options: str, **properties: str) -> Any:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return token_source(named, parse_jaas(f"{MODULE} {options};", property_name=LOGIN))


def claims(token: str) -> dict[str, Any]:
    header, body, signature = token.split(".")
    assert json.loads(_decoded(header)) == {"alg": "none"}
    assert signature == ""
    found: dict[str, Any] = json.loads(_decoded(body))
    return found


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class TestUnsigned:
    def test_has_the_claims_of_the_login(self) -> None:
        found = source(
            'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_level="2.5" '
            'unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_team="x"'
        )
        body = claims(found[0]())
        assert (body["sub"], body["level"], body["scope"]) == ("alice", 2.5, ["a", "b"])
        assert body["exp"] - 60 == pytest.approx(time.time(), abs=30)
        # A broker whose clock is a second behind, or that rounds it up, takes the token as well.
        assert time.time() - 30 < body["iat"] <= body["exp"] - 60 - 1
        assert dict(found[1]) == {"team": "x"}
        assert "lifetime_s" not in body

    def test_the_principal_may_be_another_claim(self) -> None:
        found = source('unsecuredLoginPrincipalClaimName="name" unsecuredLoginStringClaim_name="bob"')
        assert claims(found[0]())["name"] == "bob"

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ("", "has no unsecuredLoginStringClaim_sub"),
            ('unsecuredLoginPrincipalClaimName="name" unsecuredLoginStringClaim_sub="a"', "StringClaim_name"),
            ('unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_x="y"', "a claim that is not a number"),
        ],
    )
    def test_refuses_a_login_without_sense(self, options: str, problem: str) -> None:
        with pytest.raises(UsageError, match=problem):
            source(options)


class TestEndpoint:
    def test_a_file_is_read_anew_each_time(self, tmp_path: Path) -> None:
        file = tmp_path / "a token.jwt"
        found = token_source({ENDPOINT: file.as_uri()}, parse_jaas(f"{MODULE};", property_name=LOGIN))
        with pytest.raises(StoreRefusedError, match="cannot read a token"):
            found[0]()
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            assert found[0]() == token

    @pytest.mark.parametrize(
        ("properties", "options", "problem"),
        [
            ({ENDPOINT: "ldap://x"}, "", f"{ENDPOINT}: ldap://x is not supported"),
            ({ENDPOINT: "https://x"}, "", "has no clientId"),
            ({ENDPOINT: "https://x"}, f"clientId=a clientSecret={SECRET} ssl.protocol=TLS", "ssl.protocol is not"),
            ({HANDLER: "com.example.Handler"}, "", f"{HANDLER}: com.example.Handler is not supported"),
            ({"sasl.oauthbearer.jwt.retriever.class": "a.JwtBearerJwtRetriever"}, "", "JwtBearerJwtRetriever is not"),
        ],
    )
    def test_refuses_by_name(self, properties: dict[str, str], options: str, problem: str) -> None:
        with pytest.raises(UsageError, match=problem) as caught:
            token_source(properties, parse_jaas(f"{MODULE} {options};", property_name=LOGIN))
        assert SECRET not in f"{caught.value.message} {caught.value.hint}"

    def test_kafkas_own_classes_are_understood(self, tmp_path: Path) -> None:
        package = "org.apache.kafka.common.security.oauthbearer"
        properties = {
            ENDPOINT: (tmp_path / "x").as_uri(),
            HANDLER: f"{package}.secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.jwt.retriever.class": f"{package}.FileJwtRetriever",
        }
        found = token_source(properties, parse_jaas(f"{MODULE} extension_team=x;", property_name=LOGIN))
        assert dict(found[1]) == {"team": "x"}


class TestSasl:
    def test_a_token_and_its_extensions_are_the_first_message(self) -> None:
        options = "unsecuredLoginStringClaim_sub=alice unsecuredLoginExtension_team=x"
        login = sasl_login({"sasl.mechanism": "OAUTHBEARER", LOGIN: f"{MODULE} {options};"})
        assert login.mechanism == "OAUTHBEARER"
        flags, auth, extension, *rest = next(login.begin("broker.example")).decode().split("\1")
        assert (flags, extension, rest) == ("n,,", "team=x", ["", ""])
        assert claims(auth.removeprefix("auth=Bearer "))["sub"] == "alice"

    def test_a_broker_that_refuses_a_token_is_answered(self) -> None:
        login = sasl_login({"sasl.mechanism": "OAUTHBEARER", LOGIN: f"{MODULE} unsecuredLoginStringClaim_sub=alice;"})
        tokens = login.begin("broker.example")
        next(tokens)
        assert tokens.send(b'{"status":"invalid_token"}') == b"\1"
        with pytest.raises(StopIteration):
            tokens.send(b"")

    @pytest.mark.parametrize(
        ("properties", "problem"),
        [
            ({HANDLER: "com.example.Vault"}, f"{HANDLER} is not supported"),
            ({LOGIN: f"a.ScramLoginModule required username=u password={SECRET} tokenauth=true;"}, "delegation tokens"),
        ],
    )
    def test_refuses_other_ways_to_passwords(self, properties: dict[str, str], problem: str) -> None:
        login = {LOGIN: f"a.ScramLoginModule required username=u password={SECRET};"}
        with pytest.raises(UsageError, match=problem) as caught:
            sasl_login({"sasl.mechanism": "SCRAM-SHA-512", **login, **properties})
        assert SECRET not in f"{caught.value.message} {caught.value.hint}"


class TestRefusals:
    @pytest.mark.parametrize(
        ("protocol", "name", "value", "refused"),
        [
            ("SSL", "ssl.engine.factory.class", "com.example.Engine", True),
            ("SSL", "ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", True),
            ("SSL", "ssl.trustmanager.algorithm", "PKIX", False),
            ("SSL", "ssl.trustmanager.algorithm", "Other", True),
            ("PLAINTEXT", "ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", False),
            ("SSL", "sasl.login.class", "com.example.Login", False),
            ("PLAINTEXT", "config.providers", "vault", True),
            ("PLAINTEXT", "retries", "5", False),
        ],
    )
    def test_only_what_would_change_who_is_trusted(self, protocol: str, name: str, value: str, refused: bool) -> None:
        properties = {"security.protocol": protocol, name: value}
        if refused:
            with pytest.raises(UsageError, match=f"^{name} is not supported$"):
                kafka_access(properties)
        else:
            assert (kafka_access(properties).tls is not None) == (protocol == "SSL")
