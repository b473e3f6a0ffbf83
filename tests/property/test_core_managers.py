"""Quota managers under random configuration against the plain rules: buckets chosen by name, bounds renewed at once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.core.effective_quotas import effective_quotas
from tests.support.core.reference_limiters import ReferenceRate, ReferenceTokens

from kafka_quotas.core.model.entity import ABSENT, Entity
from kafka_quotas.core.model.quota_key import LONG_MAX, UNLIMITED
from kafka_quotas.core.model.quota_window import QuotaWindow
from kafka_quotas.core.quotas.quota_manager import ClientQuotaManager, QuotaType
from kafka_quotas.core.resolution.quota_resolver import QuotaResolver

Name = str | None
START_MS = 1_700_000_000_000
users = st.sampled_from(["alice", "bob", "<default>", ""])
clients = st.sampled_from(["x", "y", "<default>", ""])
names = st.one_of(st.just(ABSENT), st.none(), st.sampled_from(["alice", "bob", "<default>"]))
client_names = st.one_of(st.just(ABSENT), st.none(), st.sampled_from(["x", "y", "<default>"]))
entities = st.tuples(names, client_names).filter(lambda pair: pair != (ABSENT, ABSENT))
limits = st.one_of(st.none(), st.sampled_from([1, 5, 12.5, 100, 10_000]))
updates = st.tuples(st.just("update"), entities, limits)
clients_and_values = st.tuples(users, clients, st.one_of(st.integers(0, 5000), st.floats(0, 100)))
events = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 500), st.integers(-2000, 20_000)),
        st.one_of(
            updates,
            st.tuples(st.sampled_from(["decide", "handle", "record", "unrecord"]), clients_and_values, st.none()),
        ),
    ),
    max_size=60,
)


class ReferenceQuotas:
    """The stored limits and the kinds of levels ever used."""

    def __init__(self) -> None:
        self.stored: dict[Any, float] = {}
        self.kinds: set[tuple[bool, bool]] = set()

    def update(self, entity: Any, limit: float | None) -> None:
        self.kinds.add((entity[0] is not ABSENT, entity[1] is not ABSENT))
        self.stored.pop(entity, None)
        if limit is not None:
            self.stored[entity] = float(limit)

    def bucket(self, user: str, client: str) -> tuple[str, str]:
        if not self.kinds or self.kinds == {(False, True)}:
            return "", client
        if self.kinds == {(True, False)}:
            return user, ""
        if self.kinds == {(True, True)}:
            return user, client
        for entity in [(user, client), (user, None), (user, ABSENT), (None, client), (None, None), (None, ABSENT)]:
            if entity in self.stored:
                return user, "" if entity[1] is ABSENT else client
        return "", client

    def limit(self, bucket: tuple[str, str]) -> float | None:
        user, client = bucket
        if user and client:
            order: list[Any] = [(user, client), (user, None), (None, client), (None, None)]
        elif user:
            order = [(user, ABSENT), (None, ABSENT)]
        else:
            order = [(ABSENT, client), (ABSENT, None)] if client else []
        return next((self.stored[entity] for entity in order if entity in self.stored), None)


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(list(QuotaType)), st.integers(1, 4), st.integers(1, 2), events)
def test_manager_is_kafkas(quota_type: QuotaType, samples: int, window_s: int, steps: list[Any]) -> None:
    manager = ClientQuotaManager(quota_type, QuotaWindow(samples=samples, window_s=window_s))
    quotas = ReferenceQuotas()
    buckets: dict[tuple[str, str], Any] = {}
    longest_ms = window_s * 1000 if quota_type is QuotaType.REQUEST else LONG_MAX
    handles = {(user, client): manager.limiter(user, client) for user in ("alice", "") for client in ("x", "")}

    def bound(bucket: tuple[str, str]) -> float:
        limit = quotas.limit(bucket)
        return UNLIMITED if limit is None else limit

    now_ms = START_MS
    for step_ms, (op, what, limit) in steps:
        now_ms += step_ms
        if op == "update":
            manager.limits.update(Entity.of(user=what[0], client_id=what[1]), limit)
            quotas.update(what, limit)
            for name, state in buckets.items():
                state.bound = bound(name)
            continue
        user, client, value = what
        assert manager.limits.limit(manager.limits.bucket(user, client)) == quotas.limit(quotas.bucket(user, client))
        if not quotas.kinds:
            assert manager.record_and_throttle_ms(user, client, value, now_ms) == 0
            continue
        name = quotas.bucket(user, client)
        if name not in buckets:
            if quota_type is QuotaType.CONTROLLER_MUTATION:
                buckets[name] = ReferenceTokens(samples, window_s * 1000, bound(name))
            else:
                buckets[name] = ReferenceRate(samples, window_s * 1000)
        state = buckets[name]
        match op:
            case "record":
                manager.record_without_throttle(user, client, value, now_ms)
                state.record(value, now_ms)
            case "unrecord":
                manager.record_without_throttle(user, client, -value, now_ms)
                state.record(-value, now_ms)
            case _:
                handle = handles.get((user, client)) or manager.limiter(user, client)
                if quota_type is QuotaType.CONTROLLER_MUTATION:
                    expected = state.record_and_throttle_ms(value, now_ms)
                else:
                    expected = state.record_and_throttle_ms(value, now_ms, bound(name), longest_ms)
                if op == "handle":
                    assert handle.record(value, now_ms) == expected
                    assert handle.bound == quotas.limit(name)
                else:
                    assert manager.record_and_throttle_ms(user, client, value, now_ms) == expected


@settings(deadline=None, max_examples=120)
@given(st.dictionaries(entities, st.sampled_from([1.0, 5.0, 12.5]), max_size=6), users, clients)
def test_effective_answers_as_the_resolver_and_names_every_fitting_entity(
    stored: dict[Any, float], user: str, client: str
) -> None:
    quotas = ReferenceQuotas()
    for entity, limit in stored.items():
        quotas.update(entity, limit)
    entries = [
        (Entity.of(user=pair[0], client_id=pair[1]), {"producer_byte_rate": limit}) for pair, limit in stored.items()
    ]
    found = effective_quotas(entries, user=user, client_id=client)[0]
    assert found.limit == quotas.limit(quotas.bucket(user, client))
    if found.limit is not None:
        levels = [int(lost.level) for lost in found.overridden]
        assert levels == sorted(levels)
        assert all(level > int(found.level or 0) for level in levels)
    assert found.limit is not None or any("unlimited" in warning for warning in found.warnings)


@settings(deadline=None)
@given(st.lists(st.tuples(entities, limits), max_size=8), users.filter(bool), clients)
def test_static_limits_reach_exactly_those_who_find_no_other(
    changes: list[tuple[Any, float | None]], user: str, client: str
) -> None:
    """For users with a name: every connection has one, `ANONYMOUS` at least."""
    plain, with_static = QuotaResolver(), QuotaResolver()
    with_static.update_static(Entity.of(client_id=None), 7)
    with_static.update_static(Entity.of(client_id="x"), 9)
    for pair, limit in changes:
        for resolver in (plain, with_static):
            resolver.update(Entity.of(user=pair[0], client_id=pair[1]), limit)
    before = plain.limit(plain.bucket(user, client))
    bucket = with_static.bucket(user, client)
    if before is None:
        assert bucket == ("", client)
        assert with_static.limit(bucket) == (9 if client == "x" else 7)
    else:
        assert bucket == plain.bucket(user, client)
        assert with_static.limit(bucket) == before
