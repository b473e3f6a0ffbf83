"""What an alteration does to the znodes: every step with the version it was decided on."""

import json

import pytest

from kafka_quotas.core.errors import InvalidQuotaError, StoreError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores.zookeeper.store import (
    ZnodeState,
    ZnodeStep,
    chain_paths,
    planned_steps,
)

USER, APP = Entity.of(user="u"), Entity.of(user="u", client_id="c")
RATE = "producer_byte_rate"


def node(config: dict[str, str] | None = None, *, version: int = 7, children: int = 0) -> ZnodeState:
    data = None if config is None else json.dumps({"version": 1, "config": config}).encode()
    return ZnodeState(data=data, version=version, children=children)


def steps(entity: Entity, changes: dict[str, float | None], *chain: ZnodeState | None) -> list[ZnodeStep]:
    """The steps before the notification, which is always the last."""
    *others, last = planned_steps(entity, changes, chain)
    assert last.action == "create"
    assert last.sequence
    assert last.path == "/config/changes/config_change_"
    assert json.loads(last.data) == {"version": 2, "entity_path": chain_paths(entity)[-1].removeprefix("/config/")}
    return others


def written(step: ZnodeStep) -> object:
    assert step.action in ("create", "set_data")
    return json.loads(step.data)["config"]


def test_the_chain_is_read_from_the_outside() -> None:
    assert chain_paths(USER) == ("/config/users/u",)
    assert chain_paths(APP) == ("/config/users/u", "/config/users/u/clients", "/config/users/u/clients/c")


def test_a_new_pair_makes_the_parents_that_are_missing() -> None:
    made = steps(APP, {RATE: 5.0}, node({}), None, None)
    assert [step.action for step in made] == ["create", "create"]
    assert [step.path for step in made] == list(chain_paths(APP)[1:])
    assert written(made[1]) == {RATE: "5"}


def test_a_change_keeps_the_other_keys_and_the_version() -> None:
    (step,) = steps(USER, {RATE: 5.0}, node({"SCRAM-SHA-256": "salt", "request_percentage": "1.5", RATE: "4"}))
    assert step.action == "set_data"
    assert step.version == 7
    assert written(step) == {"SCRAM-SHA-256": "salt", "request_percentage": "1.5", RATE: "5"}


def test_credentials_are_never_removed() -> None:
    assert steps(USER, {"SCRAM-SHA-256": None}, node({"SCRAM-SHA-256": "salt"})) == []
    (step,) = steps(USER, {RATE: None}, node({"SCRAM-SHA-512": "salt", RATE: "1"}))
    assert written(step) == {"SCRAM-SHA-512": "salt"}


def test_an_unchanged_value_is_only_notified() -> None:
    assert steps(USER, {RATE: 5.0}, node({RATE: "5"})) == []


def test_removing_what_is_not_there_is_only_notified() -> None:
    assert steps(USER, {RATE: None}, None) == []
    assert steps(APP, {RATE: None}, node({}, children=1), node(children=1), None) == []


def test_an_empty_znode_goes_with_parents_of_no_use() -> None:
    chain = node(None, version=1, children=1), node(None, version=2, children=1), node({RATE: "1"}, version=3)
    user, clients, app = chain_paths(APP)
    assert steps(APP, {RATE: None}, *chain) == [
        ZnodeStep("delete", app, version=3),
        ZnodeStep("delete", clients, version=2),
        ZnodeStep("delete", user, version=1),
    ]


def test_parents_stay_while_they_hold_something() -> None:
    _, clients, app = chain_paths(APP)
    gone = node({RATE: "1"}, version=3)
    with_quota = steps(APP, {RATE: None}, node({RATE: "1"}, children=1), node(None, version=2, children=1), gone)
    assert with_quota == [ZnodeStep("delete", app, version=3), ZnodeStep("delete", clients, version=2)]
    with_sibling = steps(APP, {RATE: None}, node(None, children=1), node(None, children=2), gone)
    assert with_sibling == [ZnodeStep("delete", app, version=3)]


def test_an_emptied_user_with_clients_stays_without_quotas() -> None:
    (step,) = steps(USER, {RATE: None}, node({RATE: "1"}, children=1))
    assert step.action == "set_data"
    assert written(step) == {}


def test_odd_payloads() -> None:
    assert written(steps(USER, {RATE: 5.0}, ZnodeState(data=b"nojson", version=0, children=0))[0]) == {RATE: "5"}
    with pytest.raises(StoreError):
        steps(USER, {RATE: 5.0}, ZnodeState(data=b'{"config":{"a":1}}', version=0, children=0))
    with pytest.raises(InvalidQuotaError):
        steps(USER, {RATE: 5.5}, None)
