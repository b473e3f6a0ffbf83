"""What groups mean for one client: its group, and the limits and guaranteed rates around it."""

from ipaddress import ip_network

from kafka_quotas.core.groups.group import Group, GroupMember, GroupRates, GroupTree
from kafka_quotas.core.groups.membership import Membership, groups_of
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.resolution.effective import ANONYMOUS, OTHER, EffectiveQuotas, QuotaClient

VPN = Group(name="vpn", members=(GroupMember(address=ip_network("10.8.0.0/16")),), connection_creation_rate=20.0)
TREE = GroupTree(
    (
        Group(name="payments", producer_byte_rate=50e6, consumer_byte_rate=90e6),
        Group(
            name="payments/checkout",
            members=(GroupMember(user="checkout"), GroupMember(client_id_prefix="checkout-")),
            guaranteed=GroupRates(producer_byte_rate=20e6),
        ),
        Group(name="rest", members=(GroupMember(user=ANONYMOUS), GroupMember(client_id_pattern="*-?"))),
    )
)
WITH_ADDRESSES = Membership(GroupTree((*TREE.groups, VPN)))


def test_the_rates_are_those_of_every_group_around_by_key_and_the_innermost_first() -> None:
    found = groups_of(Membership(TREE), QuotaClient(user="checkout", client_id="x"))
    assert (found.group, found.needs_address) == ("payments/checkout", False)
    assert found.rates == (
        ("payments/checkout", "producer_byte_rate", None, 20e6),
        ("payments", "producer_byte_rate", 50e6, None),
        ("payments", "consumer_byte_rate", 90e6, None),
    )


def test_a_client_in_no_group_has_none() -> None:
    found = groups_of(Membership(TREE), QuotaClient(user="mallory", client_id="x"))
    assert (found.group, found.rates) == (None, ())


def test_a_client_id_alone_is_one_without_authentication_and_any_other_name_fits_a_pattern_of_all() -> None:
    assert groups_of(Membership(TREE), QuotaClient(client_id="x")).group == "rest"
    everybody = Membership(GroupTree((Group(name="all", members=(GroupMember(client_id_pattern="*"),)),)))
    assert groups_of(everybody, QuotaClient(user=OTHER, client_id=OTHER)).group == "all"


def test_an_address_has_the_groups_of_connections_and_a_clients_names_those_of_its_requests() -> None:
    alone = groups_of(WITH_ADDRESSES, QuotaClient(ip="10.8.1.1"))
    assert (alone.group, alone.rates) == ("vpn", (("vpn", "connection_creation_rate", 20.0, None),))
    both = groups_of(WITH_ADDRESSES, QuotaClient(user="checkout", client_id="x", ip="10.8.1.1"))
    assert both.group == "payments/checkout"
    assert {rate.key for rate in both.rates if rate.group == "vpn"} == {"connection_creation_rate"}
    unknown = groups_of(WITH_ADDRESSES, QuotaClient(user="mallory", client_id="x"))
    assert (unknown.group, unknown.needs_address) == (None, True)


def test_rates_are_quotas_behind_the_clients_own_under_the_same_key() -> None:
    client = QuotaClient(user="checkout", client_id="x")
    own = EffectiveQuotas([(Entity.of(user="checkout"), {"producer_byte_rate": 30e6})]).for_client("checkout", "x")
    shown = [
        (quota.key.name, quota.level, quota.limit, quota.bucket)
        for quota in groups_of(Membership(TREE), client).beside(own)
        if quota.limit is not None
    ]
    assert shown == [
        ("producer_byte_rate", 3, 30e6, ("checkout", "")),
        ("producer_byte_rate", "guaranteed", 20e6, (":guaranteed", "payments/checkout")),
        ("producer_byte_rate", "group", 50e6, (":group", "payments")),
        ("consumer_byte_rate", "group", 90e6, (":group", "payments")),
    ]
