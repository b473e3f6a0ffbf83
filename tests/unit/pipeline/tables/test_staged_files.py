"""Files that wait for a commit, as executors wrote them."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.pipeline.events import events_table, random_events

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.tables.lake import Lake
from kafka_quotas.pipeline.tables.packed_events import pack
from kafka_quotas.pipeline.tables.schemas import PACKED_EVENTS
from kafka_quotas.pipeline.tables.staged_files import require_written, write_staged


def test_files_that_this_machine_does_not_see_are_refused(tmp_path: Path) -> None:
    lake = Lake(url=str(tmp_path))
    lake.create()
    written = write_staged(lake, PACKED_EVENTS, pa.Table.from_batches([pack(events_table(random_events(40)))]))
    assert require_written(lake, PACKED_EVENTS, iter(written)) == written
    with pytest.raises(
        KafkaQuotasError, match=f"executors don't write to the {tmp_path}/elsewhere that this machine reads"
    ):
        require_written(Lake(url=str(tmp_path / "elsewhere")), PACKED_EVENTS, written)
