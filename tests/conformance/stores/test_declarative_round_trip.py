"""Export, apply elsewhere, export: the same file, for every odd name and value of the conformance data.

Each store is filled with whatever of the data it takes, values that we would refuse included where it takes them.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.conformance.lines import Line, conformance_lines, number
from tests.support.stores.quota_files import read_back, same_content

from kafka_quotas.commands.declarative.apply import DesiredState, HowToApply, apply, export
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.entity import EVERYTHING, Entity
from kafka_quotas.core.quota_files.writer import FileFormat, file_text
from kafka_quotas.stores import open_store
from kafka_quotas.stores.address import StoreSettings
from kafka_quotas.stores.store import Alteration, Store, content_of

OpenStore = Callable[[str], Store]
LENIENT = StoreSettings(allow_invalid=True)
PRODUCE = "producer_byte_rate"


@pytest.fixture
def opened() -> Iterator[OpenStore]:
    """Opens stores that are closed at the end."""
    stores: list[Store] = []

    def opener(url: str) -> Store:
        stores.append(open_store(url, settings=LENIENT))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


@pytest.fixture(scope="module")
def odd_content(pytestconfig: pytest.Config) -> dict[Entity, dict[str, float]]:
    """Every entity and value that the conformance data sets, merged by entity."""
    folder = Path(pytestconfig.getoption("--conformance-data"))
    content: dict[Entity, dict[str, float]] = {}
    for entity, quotas in _mentioned(folder):
        content.setdefault(entity, {}).update(quotas)
    return content


def _mentioned(folder: Path) -> Iterator[tuple[Entity, dict[str, float]]]:
    for line in conformance_lines(folder / "sanitize.jsonl"):
        if "name" in line:
            yield Entity.of(user=line["name"]), {PRODUCE: 1000.0}
            yield Entity.of(user=line["name"], client_id=line["name"]), {PRODUCE: 1001.0}
    for line in conformance_lines(folder / "zk_layout.jsonl"):
        yield from _entity(line, line["quotas"].items())
    for line in conformance_lines(folder / "validation.jsonl"):
        yield from _entity(line, line["ops"])
    for name in ("resolution.jsonl", "describe.jsonl"):
        for line in conformance_lines(folder / name):
            for stored in line["stored"] if isinstance(line.get("stored"), list) else ():
                yield from _entity(stored, stored["quotas"].items())


def _entity(line: Line, quotas: object) -> Iterator[tuple[Entity, dict[str, float]]]:
    parts = line["entity"].items() if isinstance(line["entity"], dict) else line["entity"]
    try:
        entity = Entity.from_pairs((str(kind), name) for kind, name in parts)
    except UsageError:
        return  # a type that no entity has
    values = {str(key): number(value) for key, value in quotas}  # type: ignore[attr-defined]
    set_to = {key: float(value) for key, value in values.items() if value is not None}
    if set_to:
        yield entity, set_to


def _filled(store: Store, content: dict[Entity, dict[str, float]]) -> int:
    """How many quotas the store took of the content.

    Each is offered by itself, one per entity in each call.
    """
    taken = 0
    for turn in range(max(map(len, content.values()))):
        offers = [
            Alteration(entity=entity, changes=dict([list(quotas.items())[turn]]))
            for entity, quotas in content.items()
            if len(quotas) > turn
        ]
        taken += sum(result.error is None for result in store.alter(offers))
    return taken


def _emptied(store: Store) -> None:
    removals = [
        Alteration(entity=entry.entity, changes=dict.fromkeys(entry.quotas)) for entry in store.describe(EVERYTHING)
    ]
    assert [result.error for result in store.alter(removals)] == [None] * len(removals)


def _exported(store: Store, form: FileFormat, folder: Path) -> Path:
    path = folder / f"export.{form}"
    path.write_text("".join(file_text(export(store)[0], form)), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["local", "zookeeper", "kafka4", "kafka3"])
def test_exporting_applying_elsewhere_and_exporting_again_is_the_identity(
    kind: str,
    odd_content: dict[Entity, dict[str, float]],
    opened: OpenStore,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    first_url, second_url = _urls(kind, request, tmp_path)
    first = opened(first_url)
    _emptied(first)
    assert _filled(first, odd_content) > 100
    stored = content_of(first)
    for form in FileFormat:
        assert same_content(stored, read_back(stored, form, tmp_path))
    for form in FileFormat if kind == "local" else (FileFormat.YAML,):  # a store learns nothing of it
        path = _exported(first, form, tmp_path)
        text = path.read_text(encoding="utf-8")
        second = opened(second_url)
        _emptied(second)
        result = apply(second, DesiredState(paths=[str(path)]), HowToApply(allow_invalid=True))
        assert result.failures == ()
        assert _exported(second, form, tmp_path).read_text(encoding="utf-8") == text
    assert same_content(stored, content_of(second))
    _emptied(second)


def _urls(kind: str, request: pytest.FixtureRequest, folder: Path) -> tuple[str, str]:
    """The addresses of two stores.

    Of a broker there is one only, which is emptied in between.
    """
    if kind == "local":
        return f"local:{folder / 'one.db'}", f"local:{folder / 'two.db'}"
    if kind == "zookeeper":
        first: str = request.getfixturevalue("zookeeper_chroot")
        server = request.getfixturevalue("zookeeper_server")
        client = KazooClient(server)
        client.start()
        client.ensure_path(f"/{first.rpartition('/')[2]}-elsewhere/config")
        client.stop()
        client.close()
        return first, f"{first}-elsewhere"
    url = f"kafka://{request.getfixturevalue(kind).bootstrap}"
    return url, url


@pytest.mark.conformance("validation.jsonl")
def test_what_a_line_sets_survives_a_file(line: Line, tmp_path: Path) -> None:
    for entity, quotas in _entity(line, line["ops"]):
        if not entity.parts:
            continue
        for form in FileFormat:
            assert same_content({entity: quotas}, read_back({entity: quotas}, form, tmp_path)), json.dumps(line)
