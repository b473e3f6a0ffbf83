"""The doors of the rooms: every name that one lists is there, and nothing else."""

from importlib import import_module

import pytest

ROOMS = ("enforcement", "loadtest", "stores", "wire")


@pytest.mark.parametrize("room", ROOMS)
def test_every_listed_name_is_there(room: str) -> None:
    door = import_module(f"kafka_quotas.{room}")
    assert door.__all__ == dir(door)
    for name in door.__all__:
        assert getattr(door, name) is not None


@pytest.mark.parametrize("room", ROOMS)
def test_another_name_is_no_attribute(room: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = import_module(f"kafka_quotas.{room}").nonsense
