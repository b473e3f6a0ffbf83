"""One suite for the store interface, run over every store: the same cases, the same answers.

The servers' stores need Java; `kafka3` is a broker in ZooKeeper mode by its admin protocol, `zookeeper` the znodes.
"""

import threading
import unicodedata
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from tests.support.stores.questions import quotas_of

from kafka_quotas.core.errors import InvalidQuotaError, StoreError
from kafka_quotas.core.model.entity import EVERYTHING, Entity, FilterComponent, Match, QuotaFilter
from kafka_quotas.stores import open_store
from kafka_quotas.stores.store import Alteration, QuotaEntry, Store

RATE, FETCH, SHARE, MUTATIONS, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
ALL_STORES = ("local", "zookeeper", "kafka3", "kafka4")
PLENTY = 5000.0
"""Connections/s: brokers keep to the default for addresses at once, and the suite itself comes from one."""
OpenStore = Callable[[], Store]


@pytest.fixture(params=ALL_STORES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the same empty store as often as it is called.

    What a server holds at the end is removed.
    """
    opened: list[Store] = []
    url = _url(request, tmp_path)

    def opener() -> Store:
        opened.append(open_store(url))
        return opened[-1]

    _empty(opener())
    yield opener
    _empty(opener())
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: OpenStore) -> Store:
    return open_again()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    match request.param:
        case "local":
            return f"local:{folder / 'quotas.db'}"
        case "zookeeper":
            return str(request.getfixturevalue("zookeeper_chroot"))
        case kafka:
            return f"kafka://{request.getfixturevalue(kafka).bootstrap}"


def _empty(store: Store) -> None:
    stored = store.describe(EVERYTHING)
    removals = [Alteration(entity=entry.entity, changes=dict.fromkeys(entry.quotas)) for entry in stored]
    assert [result.error for result in store.alter(removals)] == [None] * len(removals)


def _set(store: Store, entity: Entity, **changes: float | None) -> None:
    (result,) = store.alter([Alteration(entity=entity, changes=changes)])
    assert result.error is None
    assert result.entity == entity


def _entities(entries: list[QuotaEntry]) -> list[Entity]:
    return [entry.entity for entry in entries]


REFUSED: tuple[tuple[Entity, dict[str, float]], ...] = (
    (Entity.of(user="alice"), {RATE: float("nan")}),
    (Entity.of(user="alice"), {SHARE: float("inf")}),
    (Entity.of(user="alice"), {SHARE: 0.0}),
    (Entity.of(user="alice"), {RATE: 1.5}),
    (Entity.of(user="alice"), {"producer-byte-rate": 1.0}),
    (Entity.of(user="alice"), {"SCRAM-SHA-256": 1.0}),
    (Entity.of(user="alice"), {CONNECTIONS: 1.0}),
    (Entity.of(user=""), {RATE: 1.0}),
    (Entity.of(), {RATE: 1.0}),
    (Entity.of(user="alice", ip="10.0.0.1"), {CONNECTIONS: 1.0}),
    (Entity.of(ip="no such host"), {CONNECTIONS: 1.0}),
    (Entity.of(ip="10.0.0.1"), {RATE: 1.0}),
    (Entity.of(user="not \udcff unicode"), {RATE: 1.0}),
)


class TestAlter:
    def test_sets_merges_and_removes(self, store: Store) -> None:
        alice = Entity.of(user="alice")
        _set(store, alice, producer_byte_rate=1000.0, request_percentage=12.5)
        assert quotas_of(store, alice) == {RATE: 1000.0, SHARE: 12.5}
        _set(store, alice, producer_byte_rate=2000.0, consumer_byte_rate=3000.0)
        assert quotas_of(store, alice) == {RATE: 2000.0, FETCH: 3000.0, SHARE: 12.5}
        _set(store, alice, producer_byte_rate=None, request_percentage=None)
        assert quotas_of(store, alice) == {FETCH: 3000.0}
        _set(store, alice, consumer_byte_rate=None)
        assert store.describe(EVERYTHING) == []

    def test_an_alteration_of_what_is_set_reports_the_values_before(self, store: Store) -> None:
        alice = Entity.of(user="alice")
        _set(store, alice, producer_byte_rate=1000.0)
        changes = {RATE: 2000.0, FETCH: 1.0}
        (result,) = store.alter([Alteration(entity=alice, changes=changes, only_set=True)])
        assert (result.error, dict(result.before)) == (None, {RATE: 1000.0})
        (refused,) = store.alter([Alteration(entity=alice, changes={RATE: 3.0, SHARE: None}, only_set=True)])
        assert (refused.error and refused.error.message) == f"not set on user alice, so not removed: {SHARE}"
        assert quotas_of(store, alice) == changes
        (invalid,) = store.alter([Alteration(entity=alice, changes={RATE: 0.0}, only_set=True)])
        assert isinstance(invalid.error, InvalidQuotaError)
        assert dict(invalid.before) == {}, "what is refused by itself is not read"

    def test_removing_what_is_not_there_is_no_error(self, store: Store) -> None:
        _set(store, Entity.of(client_id="nobody"), producer_byte_rate=None)
        _set(store, Entity.of(user="nobody", client_id="nothing"), producer_byte_rate=None)
        assert store.describe(EVERYTHING) == []

    def test_takes_defaults_and_pairs(self, store: Store) -> None:
        for entity in (
            Entity.of(user=None),
            Entity.of(client_id=None),
            Entity.of(user="alice", client_id="app"),
            Entity.of(user="alice", client_id=None),
            Entity.of(user=None, client_id="app"),
            Entity.of(user=None, client_id=None),
        ):
            _set(store, entity, producer_byte_rate=1000.0, controller_mutation_rate=0.5)
            assert store.describe(EVERYTHING) == [QuotaEntry(entity=entity, quotas={RATE: 1000.0, MUTATIONS: 0.5})]
            _set(store, entity, producer_byte_rate=None, controller_mutation_rate=None)
            assert store.describe(EVERYTHING) == []

    def test_takes_addresses(self, store: Store) -> None:
        for address in ("10.1.2.3", None):
            _set(store, Entity.of(ip=address), connection_creation_rate=PLENTY)
            assert quotas_of(store, Entity.of(ip=address)) == {CONNECTIONS: PLENTY}

    def test_keeps_the_largest_values_exactly(self, store: Store) -> None:
        alice = Entity.of(user="alice")
        _set(store, alice, producer_byte_rate=float(2**63), request_percentage=1e-4)
        assert quotas_of(store, alice) == {RATE: float(2**63), SHARE: 1e-4}

    def test_a_user_and_its_client_are_apart(self, store: Store) -> None:
        alice, app = Entity.of(user="alice"), Entity.of(user="alice", client_id="app")
        _set(store, app, producer_byte_rate=1.0)
        _set(store, alice, producer_byte_rate=2.0)
        _set(store, app, producer_byte_rate=None)
        assert store.describe(EVERYTHING) == [QuotaEntry(entity=alice, quotas={RATE: 2.0})]

    def test_a_refused_entity_leaves_the_others_alone(self, store: Store) -> None:
        alice, bob, carol = (Entity.of(user=name) for name in ("alice", "bob", "carol"))
        results = store.alter(
            [
                Alteration(entity=alice, changes={RATE: 1000.0}),
                Alteration(entity=bob, changes={FETCH: 5.0, RATE: -1.0}),
                Alteration(entity=carol, changes={RATE: 3000.0}),
            ]
        )
        assert [result.entity for result in results] == [alice, bob, carol]
        assert [result.error is None for result in results] == [True, False, True]
        assert isinstance(results[1].error, InvalidQuotaError)
        assert _entities(store.describe(EVERYTHING)) == [alice, carol]

    def test_an_entity_named_twice_gets_both_changes(self, store: Store) -> None:
        alice = Entity.of(user="alice")
        results = store.alter(
            [
                Alteration(entity=alice, changes={RATE: 1.0, SHARE: 5.0}),
                Alteration(entity=alice, changes={RATE: 2.0, FETCH: 3.0}),
            ]
        )
        assert [result.error for result in results] == [None, None]
        assert quotas_of(store, alice) == {RATE: 2.0, FETCH: 3.0, SHARE: 5.0}

    def test_validate_only_writes_nothing(self, store: Store) -> None:
        alice, bob = Entity.of(user="alice"), Entity.of(user="bob")
        _set(store, alice, producer_byte_rate=1000.0)
        results = store.alter(
            [
                Alteration(entity=alice, changes={RATE: None, FETCH: 1.0}),
                Alteration(entity=bob, changes={RATE: 0.0}),
            ],
            validate_only=True,
        )
        assert [result.error is None for result in results] == [True, False]
        assert store.describe(EVERYTHING) == [QuotaEntry(entity=alice, quotas={RATE: 1000.0})]

    def test_nothing_to_do_is_no_error(self, store: Store) -> None:
        assert store.alter([]) == []

    def test_refuses_what_no_store_takes(self, store: Store) -> None:
        for entity, changes in REFUSED:
            (result,) = store.alter([Alteration(entity=entity, changes=changes)])
            assert isinstance(result.error, InvalidQuotaError), (entity, changes)
            assert "\n" not in result.error.message
        assert store.describe(EVERYTHING) == []


def _sample_of_every_category() -> list[str]:
    """A character of every Unicode category but surrogates, which are no characters."""
    found: dict[str, str] = {}
    for code in range(0xE001):  # where private use begins, the last of them
        found.setdefault(unicodedata.category(chr(code)), chr(code))
    found.pop("Cs")
    return list(found.values())


_SAMPLE = _sample_of_every_category()
ODD_NAMES = [
    *(f"a{character}b" for character in _SAMPLE),
    *_SAMPLE,
    "<default>", "line\nbreak", "a/b", "/", "a=b", "a,b", 'CN=Alice, OU="R&D", C=DE', "a b", " a", "*", "~", "+", "%41",
    "%", "\\", "'", '"', "`$(true)`", "null", "None", "ALICE", "alice", "Alice", "\x00", "\U0010ffff",
    "e\u0301", "\u00e9", "...", "clients", "x" * 200,
]  # fmt: skip


class TestNames:
    def test_every_odd_name_comes_back_as_it_was(self, store: Store) -> None:
        users = [Entity.of(user=name) for name in ODD_NAMES]
        pairs = [Entity.of(user=name, client_id=name) for name in ODD_NAMES]
        clients = [Entity.of(client_id=name) for name in ODD_NAMES]
        wanted = {entity: float(index + 1) for index, entity in enumerate([*users, *pairs, *clients])}
        results = store.alter([Alteration(entity=entity, changes={RATE: value}) for entity, value in wanted.items()])
        assert {result.entity: result.error for result in results} == dict.fromkeys(wanted)
        found = store.describe(EVERYTHING)
        assert {entry.entity: entry.quotas[RATE] for entry in found} == wanted
        assert _entities(found) == sorted(wanted, key=lambda entity: entity.sort_key)

    def test_an_odd_name_is_found_by_itself_only(self, store: Store) -> None:
        names = ["<default>", "line\nbreak", "a/b", "a=b,c", "\u00e9", "e\u0301", "%2F", None, "other"]
        for number, name in enumerate(names):
            _set(store, Entity.of(user=name), producer_byte_rate=1.0 + number)
        for number, name in enumerate(names):
            assert quotas_of(store, Entity.of(user=name)) == {RATE: 1.0 + number}


STORED = (
    Entity.of(user="alice"),
    Entity.of(user="alice", client_id="app"),
    Entity.of(user="alice", client_id=None),
    Entity.of(user="bob"),
    Entity.of(user=None),
    Entity.of(user=None, client_id="app"),
    Entity.of(client_id="app"),
    Entity.of(client_id=None),
    Entity.of(ip="10.0.0.1"),
    Entity.of(ip=None),
)


@pytest.fixture
def filled(store: Store) -> Store:
    alterations = [
        Alteration(
            entity=entity,
            changes={CONNECTIONS: PLENTY} if isinstance(entity.ip, str) or entity.ip is None else {RATE: 5.0},
        )
        for entity in STORED
    ]
    assert [result.error for result in store.alter(alterations)] == [None] * len(STORED)
    return store


def _component(entity_type: str, match: Match, name: str | None = None) -> FilterComponent:
    return FilterComponent(entity_type=entity_type, match=match, name=name)


FILTERS = (
    (),
    (_component("user", Match.EXACT, "alice"),),
    (_component("user", Match.DEFAULT),),
    (_component("user", Match.ANY),),
    (_component("client-id", Match.EXACT, "app"),),
    (_component("client-id", Match.DEFAULT),),
    (_component("client-id", Match.ANY),),
    (_component("ip", Match.EXACT, "10.0.0.1"),),
    (_component("ip", Match.DEFAULT),),
    (_component("ip", Match.ANY),),
    (_component("user", Match.EXACT, "alice"), _component("client-id", Match.ANY)),
    (_component("client-id", Match.EXACT, "app"), _component("user", Match.DEFAULT)),
    (_component("user", Match.ANY), _component("client-id", Match.DEFAULT)),
    (_component("user", Match.EXACT, "nobody"),),
)
CONTRADICTIONS = (
    (_component("user", Match.ANY), _component("user", Match.DEFAULT)),
    (_component("user", Match.ANY), _component("ip", Match.ANY)),
    (_component("group", Match.ANY),),
)


class TestDescribe:
    def test_filters(self, filled: Store) -> None:
        for components, strict in product(FILTERS, (False, True)):
            found = _entities(filled.describe(QuotaFilter(components=components, strict=strict)))
            wanted = [entity for entity in STORED if _by_definition(components, strict, entity)]
            assert found == sorted(wanted, key=lambda entity: entity.sort_key), (components, strict)

    def test_refuses_filters_as_kafka_does(self, store: Store) -> None:
        for components in CONTRADICTIONS:
            with pytest.raises(InvalidQuotaError):
                store.describe(QuotaFilter(components=components))


def _by_definition(components: tuple[FilterComponent, ...], strict: bool, entity: Entity) -> bool:
    """Whether an entity passes, by KIP-546's words: every component matches, strict knows no other types."""
    parts = entity.to_mapping()
    if strict and set(parts) != {component.entity_type for component in components}:
        return False
    for component in components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match is Match.EXACT and name != component.name:
            return False
        if component.match is Match.DEFAULT and name is not None:
            return False
    return True


class TestWatch:
    def test_gives_the_content_at_once_and_then_waits(self, store: Store) -> None:
        _set(store, Entity.of(user="alice"), producer_byte_rate=1.0)
        snapshot = store.watch(None, timeout_s=240)
        assert snapshot is not None
        assert snapshot.entries == (QuotaEntry(entity=Entity.of(user="alice"), quotas={RATE: 1.0}),)
        assert store.watch(snapshot.revision, timeout_s=0) is None

    def test_sees_a_change_that_another_makes(self, open_again: OpenStore) -> None:
        watcher, writer = open_again(), open_again()
        before = watcher.watch(None, timeout_s=240)
        assert before is not None
        change = threading.Thread(target=_set, args=(writer, Entity.of(user="bob")), kwargs={RATE: 5.0})
        change.start()
        after = watcher.watch(before.revision, timeout_s=240)
        if after is not None and not after.entries:  # in ZooKeeper the folder of the first user comes before the user
            after = watcher.watch(after.revision, timeout_s=240)
        change.join()
        assert after is not None
        assert after.revision != before.revision
        assert after.entries == (QuotaEntry(entity=Entity.of(user="bob"), quotas={RATE: 5.0}),)

    def test_ends_when_the_store_is_closed(self, open_again: OpenStore) -> None:
        watcher = open_again()
        snapshot = watcher.watch(None, timeout_s=240)
        assert snapshot is not None
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(watcher.watch(snapshot.revision, timeout_s=600)))
        thread.start()
        watcher.close()
        thread.join(240)
        assert not thread.is_alive()
        assert found == [None]


class TestLife:
    def test_opens_again_under_its_own_address(self, store: Store) -> None:
        _set(store, Entity.of(user="alice"), producer_byte_rate=1.0)
        again = open_store(store.url)
        assert again.url == store.url
        assert again.describe(EVERYTHING) == store.describe(EVERYTHING)
        again.close()

    def test_is_of_no_use_once_closed(self, open_again: OpenStore) -> None:
        store = open_again()
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.describe(EVERYTHING)
        with pytest.raises(StoreError, match="closed"):
            store.alter([Alteration(entity=Entity.of(user="alice"), changes={RATE: 1.0})])
