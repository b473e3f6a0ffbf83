"""What the fuzzer feeds still runs: each target on messages of every API and version, whole and cut, and on rubbish.

Nothing else calls `fuzz/targets.py`, which a renamed class would break until somebody fuzzes next.
"""

import importlib.util
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kio.static.constants import EntityType
from tests.support.frames import kio_samples

from kafka_quotas.core.errors import KafkaQuotasError

TARGETS = Path(__file__).parents[2] / "fuzz/targets.py"


def targets() -> tuple[Callable[[bytes], None], ...]:
    spec = importlib.util.spec_from_file_location("fuzz_targets", TARGETS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TARGETS  # type: ignore[no-any-return]


def inputs(seed: int) -> Iterator[bytes]:
    drawn = random.Random(seed)
    places = sorted(kio_samples.versions_of(EntityType.request))
    for key, version in drawn.sample(places, 40) + [place for place in places if place[0] == 0]:
        frame = kio_samples.request_frame(kio_samples.filled_request(key, version), client_id="app")
        answer = kio_samples.response_frame(kio_samples.filled_response(key, version))
        for start in (b"\xc8\xff", b"\x01\xff"):  # all of it from the client, with either way to refuse
            yield start + frame
        yield frame[7:]
        yield frame[4:]
        yield frame[4 : drawn.randrange(5, len(frame) + 1)]
        yield drawn.randbytes(2) + answer[4:]
    for _ in range(40):
        yield drawn.randbytes(drawn.randrange(1, 200))


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.__name__)
def test_a_target_ends_in_nothing_or_an_error_of_ours(target: Callable[[bytes], None]) -> None:
    served = 0
    for data in inputs(7):
        try:
            target(data)
            served += 1
        except KafkaQuotasError:
            continue
    assert served > 0
