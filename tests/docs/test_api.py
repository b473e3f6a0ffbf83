"""`import kafka_quotas`: the names it promises, what importing costs, and the page that shows it."""

import doctest
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import kafka_quotas
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.stores import open_store

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, kafka_quotas; print([name for name in sys.modules if name.startswith('kafka_quotas.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", kafka_quotas.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    value = getattr(kafka_quotas, name)
    assert value is getattr(kafka_quotas, name)
    if callable(value):
        assert value.__doc__
    assert re.search(rf"\b{name}\b", PAGE.read_text(encoding="utf-8")) or name in {
        "AlterationResult",
        "EffectiveQuota",
        "PlannedChange",
        "QuotaEntry",
        "Store",
    }


def test_the_names_are_listed() -> None:
    assert dir(kafka_quotas) == sorted(kafka_quotas.__all__)
    assert kafka_quotas.open_store is open_store


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = kafka_quotas.nonsense


def test_the_examples_of_the_page_do_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "api.md", str(PAGE), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert (result.failed, "".join(report)) == (0, "")
    assert result.attempted > 15


def test_static_files_and_addresses_are_answered_for(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("quota.producer.default=1000\n")
    with closing(kafka_quotas.open_store(f"static:{path}")) as store:
        answers = kafka_quotas.effective(store, client_id="app", ip="10.0.0.1")
    assert [(answer.key.name, answer.limit) for answer in answers][::4] == [
        ("producer_byte_rate", 1000.0),
        ("connection_creation_rate", None),
    ]
    assert answers[0].entity == Entity.of(client_id=None)
