"""A folder with files, a local store and a journal, and the command run on them."""

import json
from pathlib import Path
from typing import Any

from tests.support.processes.run_cli import run_cli

from kafka_quotas.core.model.entity import EVERYTHING
from kafka_quotas.stores import open_store
from kafka_quotas.stores.files.journal import Journal


class QuotaDesk:
    """The store and the journal are those of every command, unless another store is named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"local:{folder / 'quotas.db'}"
        self.journal = Journal(folder / "journal.jsonl")
        self.environment = {"KAFKA_QUOTAS_JOURNAL": str(self.journal.path)}

    def file(self, text: str, name: str = "q.yaml") -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / name)

    def run(self, *argv: str, terminal: bool = False, store: str | None = None) -> tuple[int, str, str]:
        environment = {"KAFKA_QUOTAS_STORE": store or self.url, **self.environment}
        return run_cli(*argv, terminal=terminal, environment=environment)

    def data(self, *argv: str) -> dict[str, Any]:
        code, out, err = self.run(*argv, "--output", "json")
        assert code == 0, err
        document: dict[str, Any] = json.loads(out)
        return document

    def quotas(self) -> dict[str, dict[str, float]]:
        """What is stored by entity."""
        store = open_store(self.url)
        found = {str(entry.entity): dict(entry.quotas) for entry in store.describe(EVERYTHING)}
        store.close()
        return found
