"""Coverage-guided fuzzing of every parser of outside bytes: `python fuzz/parsers.py --seconds 600`.

Needs `pip install atheris`, which is no dependency of the project: nothing but this script uses it. An input is the
number of a target (see `targets.py`) and the bytes that it gets. An error of ours is what rubbish is supposed to end
in; anything else stops the run, with the input in a file `crash-*`. The first inputs are whole messages of every API
and version that kio knows.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(Path(__file__).parent)]

with atheris.instrument_imports(include=["kafka_quotas"]):
    import targets

from kafka_quotas.core.errors import KafkaQuotasError


def feeds(names: Sequence[str]) -> Callable[[bytes], None]:
    """Return what hands an input to its target, with names only to one of theirs."""
    chosen = [target for target in targets.TARGETS if not names or target.__name__ in names]

    def one_input(data: bytes) -> None:
        """Hand an input to its target."""
        if not data:
            return
        target = targets.TARGETS[data[0] % len(targets.TARGETS)]
        if target not in chosen:
            target = chosen[data[0] % len(chosen)]
        try:
            target(data[1:])
        except KafkaQuotasError:
            return

    return one_input


def write_seeds(folder: Path) -> int:
    """How many inputs were written: a whole request and response of every API and version."""
    from kio.static.constants import EntityType
    from tests.support.frames import kio_samples

    count = 0
    for key, version in kio_samples.versions_of(EntityType.request):
        request = kio_samples.request_frame(kio_samples.filled_request(key, version), client_id="fuzz")
        response = kio_samples.response_frame(kio_samples.filled_response(key, version))
        (folder / f"request-{key}-{version}").write_bytes(bytes([0]) + request[4:])
        (folder / f"session-{key}-{version}").write_bytes(bytes([5, 200]) + request + response)
        if (key, version) in targets.PLACES:
            place = targets.PLACES.index((key, version)).to_bytes(2, "big")
            (folder / f"response-{key}-{version}").write_bytes(bytes([1]) + place + response[4:])
        count += 1
    return count + _write_more_seeds(folder)


def _write_more_seeds(folder: Path) -> int:
    """How many inputs were written beside messages: Produce with numbered batches, files, questions, greetings."""
    from kio.static.constants import EntityType
    from tests.support.frames import kio_samples

    seeds: dict[str, bytes] = {}
    for key, version in kio_samples.versions_of(EntityType.request):
        if key in (0, 3, 19, 20, 37):
            frame = kio_samples.request_frame(kio_samples.filled_request(key, version), client_id="app")
            answer = kio_samples.response_frame(kio_samples.filled_response(key, version))
            seeds[f"treated-{key}-{version}"] = bytes([6, 200, 128]) + frame + answer
            if key == 0:
                seeds[f"cut-{version}"] = bytes([7]) + frame[7:]
    seeds["question"] = bytes([4]) + b'{"op": "record", "type": "produce", "amount": 5.0}'
    for path in sorted((ROOT / "examples/daemon").iterdir()):
        if path.suffix in (".toml", ".properties"):
            seeds[f"file-{path.name}"] = bytes([8]) + path.read_bytes()
    for name, content in seeds.items():
        (folder / name).write_bytes(content)
    return len(seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="how long to go on (default 600)")
    parser.add_argument("--corpus", type=Path, help="a folder of inputs to start from and to add to")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        choices=[target.__name__ for target in targets.TARGETS],
        help="only this target of targets.py (repeatable; default: all)",
    )
    arguments = parser.parse_args()
    corpus = arguments.corpus or Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        print(f"{write_seeds(corpus)} versions of messages to start from in {corpus}")
    options = [sys.argv[0], f"-max_total_time={arguments.seconds}", "-max_len=8192", "-timeout=20", str(corpus)]
    atheris.Setup(options, feeds(arguments.target))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
