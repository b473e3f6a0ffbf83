"""What is written to a file of quotas reads back as exactly what it was: any name, any value, any format."""

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.stores.quota_files import read_back, same_content

from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import QUOTA_KEYS
from kafka_quotas.core.quota_files.writer import FileFormat

# A name is whatever UTF-8 can hold; lone surrogates it can't, and no store can either.
ODD_NAMES = (
    "null",
    "~",
    "true",
    "no",
    "1",
    "1.0",
    "0x10",
    "2026-11-21",
    "<default>",
    "a: b",
    "- a",
    "#",
    "'",
    '"',
    "\\",
    "$web",
    "\n",
    "\r\n",
    "\t",
    "\x85",
    "\u2028",
    "\ufeff",
    "\x00",
    "\x7f",
    "é",
    "e\u0301",
    "\U0001f600",
    " ",
    "a ",
    "&a",
    "*a",
    "!!str a",
    "{}",
    "[]",
    "|",
    ">",
    "%",
    "@",
    "`",
    ",",
    "=",
    "<<",
)
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(ODD_NAMES)
ENTITIES = st.one_of(
    st.builds(lambda user: Entity.of(user=user), NAMES),
    st.builds(lambda client_id: Entity.of(client_id=client_id), NAMES),
    st.builds(lambda user, client_id: Entity.of(user=user, client_id=client_id), NAMES, NAMES),
    st.builds(lambda ip: Entity.of(ip=ip), NAMES),
)
VALUES = st.one_of(
    st.floats(),
    st.integers(1, 2**63).map(float),
    st.sampled_from(
        [0.0, -0.0, -1.0, 0.1, 5e-324, 1e300, 2.0**63, 2.0**31 - 1, 2.0**64, 1e-5, math.nan, math.inf, -math.inf]
    ),
)
QUOTAS = st.dictionaries(st.sampled_from([*QUOTA_KEYS, "future_rate"]), VALUES, min_size=1)


@pytest.mark.parametrize("form", FileFormat)
@given(content=st.dictionaries(ENTITIES, QUOTAS, max_size=4))
@settings(deadline=None, max_examples=150)
def test_a_file_reads_back_as_it_was(form: FileFormat, content: dict[Entity, dict[str, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = read_back(content, form, Path(folder))
    assert same_content(content, found)
