"""The secrets of a fleet's file."""

from pathlib import Path

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.enforcement.config.settings import read_secrets

FIRST, SECOND = "f" * 32, "s" * 16


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (FIRST, (FIRST.encode(),)),
        (f"{FIRST}\n", (FIRST.encode(),)),
        (f"\n  {FIRST} \r\n\n{SECOND}\n", (FIRST.encode(), SECOND.encode())),
    ],
)
def test_the_first_line_signs_and_the_second_is_for_a_change(
    tmp_path: Path, content: str, secrets: tuple[bytes, ...]
) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    assert read_secrets(path) == secrets


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "one or two secrets"),
        ("\n\n", "one or two secrets"),
        (f"{FIRST}\n{SECOND}\n{FIRST}", "one or two secrets"),
        ("f" * 5000, "one or two secrets"),
        ("f" * 15, "fewer than 16"),
        (f"{FIRST}\nshort", "fewer than 16"),
    ],
)
def test_a_file_that_holds_none_is_refused(tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    with pytest.raises(UsageError, match=error):
        read_secrets(path)


@pytest.mark.parametrize("path", ["/none/here", "/", "/dev/zero"])
def test_what_is_no_file_of_secrets_is_refused(path: str) -> None:
    with pytest.raises(UsageError):
        read_secrets(Path(path))
