"""Logins at Amazon MSK with IAM: the signed request that the mechanisms AWS_MSK_IAM and OAUTHBEARER send there.

The token is a request to connect that the credentials sign for a quarter of an hour. Credentials, profiles and roles
are those of the AWS tools, as botocore reads them: variables, `~/.aws`, web identities, containers, the instance. The
region is in the broker's name, else in AWS_REGION or the profile. Tested against AWS's signer, not run against MSK.

**Source:** aws-msk-iam-auth 2.3 (`AWS4SignedPayloadGenerator`, `IAMSaslClient`), aws-msk-iam-sasl-signer-python 1.0.2.
"""

import base64
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from kafka_quotas.core.errors import StoreRefusedError, UsageError
from kafka_quotas.core.extras import require_extra

AWS_MSK_IAM: Final = "AWS_MSK_IAM"
CLIENT_HANDLER: Final = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_VALID_S: Final = 900
"""How long a signed request is taken, which ends no connection."""
_SERVICE: Final = "kafka-cluster"
_VERSION: Final = "2020_10_22"
_AGENT: Final = "kafka-quotas"
_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?")
_REGION_HINT: Final = "set AWS_REGION: the region is in the names of MSK's brokers, and this is none"
_CREDENTIALS_HINT: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile by AWS_PROFILE or awsProfileName"
)
_ROLE_HINT: Final = "give a profile in ~/.aws/config the role_arn and source_profile, and name it by awsProfileName"


@dataclass(frozen=True, slots=True, kw_only=True)
class IamIdentity:
    """Credentials of AWS, which are renewed where they expire."""

    credentials: Any = field(repr=False)
    """botocore's."""
    region: str
    """Region for brokers whose name has none, "" for none."""

    def signed_json(self, host: str) -> bytes:
        """Return what AWS_MSK_IAM sends to a broker."""
        query = urlsplit(self._signed_url(host, self._region_of(host))).query
        signed = {name.lower(): value for name, value in parse_qsl(query)}
        return json.dumps({"version": _VERSION, "host": host, "user-agent": _AGENT, **signed}).encode()

    def bearer_token(self, host: str) -> tuple[str, float]:
        """Return the token that MSK takes by OAUTHBEARER, and the second of its end since 1970."""
        region = self._region_of(host)
        ends_s = time.time() + _VALID_S
        url = f"{self._signed_url(f'kafka.{region}.amazonaws.com', region)}&User-Agent={_AGENT}"
        return base64.urlsafe_b64encode(url.encode()).decode().rstrip("="), ends_s

    def _region_of(self, host: str) -> str:
        found = _REGION.search(host.lower())
        region = found[1] if found else self.region
        if not region:
            raise UsageError(f"the AWS region of {host} is unknown", hint=_REGION_HINT)
        return region

    def _signed_url(self, host: str, region: str) -> str:
        from botocore.auth import SigV4QueryAuth  # noqa: PLC0415 - an extra
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        request = AWSRequest(method="GET", url=f"https://{host}/", params={"Action": f"{_SERVICE}:Connect"})
        try:
            frozen = self.credentials.get_frozen_credentials()
        except (BotoCoreError, ClientError, ValueError, RuntimeError) as error:  # a role, a login that is over
            raise StoreRefusedError(f"no AWS credentials: {_one_line(error)}", hint=_CREDENTIALS_HINT) from error
        SigV4QueryAuth(frozen, _SERVICE, region, expires=_VALID_S).add_auth(request)
        return str(request.url)


def iam_identity(options: Mapping[str, str]) -> IamIdentity:
    """Return the identity that the options of the login entry, the variables and the AWS files name."""
    require_extra("msk", "botocore", needed_by=f"{AWS_MSK_IAM} needs")
    role = next((name for name in options if name.startswith("awsRole")), None)
    if role is not None:
        raise UsageError(f"sasl.jaas.config: {role} is not supported", hint=_ROLE_HINT)
    return _identity(options.get("awsProfileName"))


@cache  # a session takes 20 ms to make, and a load test has thousands of clients
def _identity(profile: str | None) -> IamIdentity:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra
    from botocore.session import Session  # noqa: PLC0415

    session: Any = Session(profile=profile)
    try:
        credentials = session.get_credentials()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or ""
    except (BotoCoreError, ValueError) as error:
        raise UsageError(f"no AWS credentials: {_one_line(error)}", hint=_CREDENTIALS_HINT) from error
    if credentials is None:
        raise UsageError("there are no AWS credentials", hint=_CREDENTIALS_HINT)
    return IamIdentity(credentials=credentials, region=region)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
