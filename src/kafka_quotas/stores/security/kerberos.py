"""Logins by Kerberos: the mechanism GSSAPI, through the system's library.

Without a keytab the tickets of `kinit` are used. Realms, servers and names of hosts are those of `krb5.conf`, by its
usual variables. Client and broker prove to each other who they are; there is no layer of integrity or confidentiality
over the connection, which Kafka has none of: that is TLS.

**Source:** RFC 4752; `SaslClientAuthenticator`, `KerberosLogin`, Kafka 4.3; Java's `Krb5LoginModule`.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from kafka_quotas.core.errors import ProtocolError, StoreRefusedError, UsageError
from kafka_quotas.core.extras import install_extra

GSSAPI: Final = "GSSAPI"
SERVICE_NAME: Final = "sasl.kerberos.service.name"
LOGIN: Final = "sasl.jaas.config"
"""The property of the login entry."""
_NO_LAYER: Final = 1
_SIZE_BYTES: Final = 3
_NO_CACHE: Final = "No credentials cache found"
_LIBRARY_HINT: Final = "it is built against the system's: apt install libkrb5-dev gcc, or dnf install krb5-devel gcc"
_TICKET_HINT: Final = f"get a ticket with kinit, or name keyTab and principal in {LOGIN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosIdentity:
    """Who logs in at which service, without a keytab by the tickets of a cache."""

    service: str
    principal: str | None = None
    keytab: str | None = None
    cache: str | None = None

    @property
    def named(self) -> Mapping[str, str]:
        """The identity by librdkafka's names."""
        found = {"service.name": self.service, "keytab": self.keytab, "principal": self.principal}
        return {f"sasl.kerberos.{name}": value for name, value in found.items() if value is not None}

    def tokens(self, host: str) -> Generator[bytes, bytes, None]:
        """Yield the client's tokens for a broker, and check the broker's.

        Raises:
            StoreRefusedError: There is no ticket for the broker, or the broker is not who it should be.
            ProtocolError: The broker wants what Kafka has not.
        """
        gssapi = kerberos_library()
        try:
            name = gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(
                name=name,
                creds=self._credentials(gssapi),
                mech=gssapi.MechType.kerberos,
                flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
                usage="initiate",
            )
            token = context.step()
            while not context.complete:
                token = context.step((yield token or b""))
            offer = context.unwrap((yield token or b"")).message
            if len(offer) != 1 + _SIZE_BYTES or not offer[0] & _NO_LAYER:
                raise ProtocolError("the broker wants a security layer, which Kafka's connections have not")
            answer = context.wrap(bytes([_NO_LAYER]) + bytes(_SIZE_BYTES), encrypt=False).message
        except gssapi.exceptions.GSSError as error:
            raise self._refused(_reason(error)) from error
        yield answer

    def _refused(self, reason: str) -> StoreRefusedError:
        hint = _TICKET_HINT
        if self.keytab is not None:
            if reason == _NO_CACHE:  # all that the library tells of a key, a realm or a KDC that gives no ticket
                reason = f"no ticket for {self.principal} by the key in {self.keytab}"
            hint = "klist -k FILE tells whose keys it holds; kinit -k -t FILE NAME why there is no ticket"
        return StoreRefusedError(f"no login by Kerberos: {reason}", hint=hint)

    def _credentials(self, gssapi: Any) -> Any:
        name = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal) if self.principal else None
        store = None if self.cache is None else {"ccache": self.cache}
        if self.keytab is not None:  # the user's own tickets stay as they are
            store = {"client_keytab": self.keytab, "ccache": f"MEMORY:kafka-quotas {self.principal} {self.keytab}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


def kerberos_identity(properties: Mapping[str, str], options: Mapping[str, str]) -> KerberosIdentity:
    """Return who the properties and the options of the login entry name."""
    by_property, by_option = properties.get(SERVICE_NAME, "").strip(), options.get("serviceName", "").strip()
    if by_property and by_option and by_property != by_option:
        raise UsageError(f"{SERVICE_NAME} and serviceName in {LOGIN} name two services", hint="leave one out")
    service = by_property or by_option
    if not service:
        raise UsageError(f"{SERVICE_NAME} is missing", hint="kafka, if the broker's principal is kafka/HOST@REALM")
    principal = options.get("principal") or properties.get("sasl.kerberos.principal") or None
    keytab = options.get("keyTab") or properties.get("sasl.kerberos.keytab") or None
    if options.get("useKeyTab", "").lower() != "true" and "sasl.kerberos.keytab" not in properties:
        return KerberosIdentity(service=service, principal=principal, cache=options.get("ticketCache") or None)
    if keytab is None or principal is None:
        missing = "keyTab" if keytab is None else "principal"
        raise UsageError(f"{LOGIN} has no {missing}", hint='useKeyTab=true keyTab="FILE" principal="NAME@REALM"')
    return KerberosIdentity(service=service, principal=principal, keytab=keytab)


def kerberos_library() -> Any:
    """Return the library, or refuse the login for want of it."""
    try:
        return import_module("gssapi")
    except ImportError as error:
        problem = "not installed here" if error.name == "gssapi" else f"which does not work here: {error}"
        raise UsageError(
            f"{GSSAPI} needs the library gssapi, {problem}",
            hint=f"{install_extra('gssapi', 'gssapi')}; {_LIBRARY_HINT}",
        ) from error


def _reason(error: Any) -> str:
    """Return the mechanism's own message, as the general one says nothing."""
    found = error.get_all_statuses(error.min_code, False) or error.get_all_statuses(error.maj_code, True)  # noqa: FBT003
    return " ".join(" ".join(found).split()).rstrip(".")
