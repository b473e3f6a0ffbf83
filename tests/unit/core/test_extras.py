"""Optional libraries: what is missing is named as a person lists things."""

import pytest

from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.extras import require_extra


@pytest.mark.parametrize(
    ("modules", "names"),
    [
        (("nil_a",), "nil_a"),
        (("nil_a", "sys", "nil_b"), "nil_a and nil_b"),
        (("nil_a", "nil_b", "nil_c"), "nil_a, nil_b and nil_c"),
    ],
)
def test_what_is_missing_is_one_list_and_the_extra_is_the_hint(modules: tuple[str, ...], names: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_extra("spark", *modules, needed_by="the pipeline needs")
    assert refused.value.message == f"the pipeline needs {names}, not installed here"
    assert refused.value.hint == "pip install 'kafka-quotas[spark]'"
