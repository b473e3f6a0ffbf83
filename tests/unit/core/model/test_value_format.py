"""Figures with units: what they mean, how they are written, and what is refused."""

import math
from fractions import Fraction

import pytest

from kafka_quotas.core.errors import InvalidQuotaError
from kafka_quotas.core.model.quota_key import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    INT_MAX,
    LONG_MAX,
    PRODUCER_BYTE_RATE,
    QUOTA_KEYS,
    REQUEST_PERCENTAGE,
    QuotaKey,
)
from kafka_quotas.core.model.value_format import (
    format_bytes,
    format_number,
    format_quota_value,
    parse_bytes,
    parse_quota_value,
)


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("1048576", 1048576),
        ("2M", 2_000_000),
        ("2MB", 2_000_000),
        ("2 MB/s", 2_000_000),
        ("10MiB", 10 * 1024**2),
        ("10MiBps", 10 * 1024**2),
        ("1Ki", 1024),
        ("3Gi", 3 * 1024**3),
        ("1TiB", 1024**4),
        ("1.5kB", 1500),
        ("80Mbps", 10_000_000),
        ("8kb/s", 1000),
        ("8 Kib/s", 1024),
        ("1e6", 1_000_000),
        ("2.5e-1MB", 250_000),
        (".5k", 500),
        ("5.", 5),
        (" 7 ", 7),
        ("-3k", -3000),
        ("0.1B", Fraction(1, 10)),
    ],
)
def test_sizes_are_exact(text: str, expect: Fraction) -> None:
    assert parse_bytes(text) == expect


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "1K",
        "1KB",
        "1m",
        "1PB",
        "1,000",
        "1_000",
        "0x10",
        "1 2",
        "1MB/min",
        "1/",
        "1kbp",
        "ten",
        "1e",
        "\u0661",
    ],
)
def test_other_texts_are_no_size(text: str) -> None:
    with pytest.raises(InvalidQuotaError):
        parse_bytes(text)


def test_bits_need_a_rate() -> None:
    with pytest.raises(InvalidQuotaError) as raised:
        parse_bytes("8Mb")
    assert raised.value.hint == "write 8Mb/s, or B for bytes"


@pytest.mark.parametrize(
    ("key", "text", "expect"),
    [
        (PRODUCER_BYTE_RATE, "10MiB", 10485760.0),
        (PRODUCER_BYTE_RATE, "1.5k", 1500.0),
        (PRODUCER_BYTE_RATE, "unlimited", float(LONG_MAX)),
        (PRODUCER_BYTE_RATE, " Unlimited ", float(LONG_MAX)),
        (CONNECTION_CREATION_RATE, "unlimited", float(INT_MAX)),
        (CONNECTION_CREATION_RATE, "10/s", 10.0),
        (REQUEST_PERCENTAGE, "12.5%", 12.5),
        (REQUEST_PERCENTAGE, "200", 200.0),
        (CONTROLLER_MUTATION_RATE, "0.5/s", 0.5),
        (PRODUCER_BYTE_RATE, "0", 0.0),
        (PRODUCER_BYTE_RATE, "-1", -1.0),
    ],
)
def test_quota_values(key: QuotaKey, text: str, expect: float) -> None:
    assert parse_quota_value(key, text) == expect


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (PRODUCER_BYTE_RATE, "NaN", "must be a finite number"),
        (REQUEST_PERCENTAGE, "-Infinity", "must be a finite number"),
        (PRODUCER_BYTE_RATE, "1e999", "is too large"),
        (PRODUCER_BYTE_RATE, "10%", "takes bytes per second, not %"),
        (PRODUCER_BYTE_RATE, "1.5", "must be a whole number of bytes/s"),
        (PRODUCER_BYTE_RATE, "1.0000000001", "must be a whole number"),
        (PRODUCER_BYTE_RATE, "1bps", "must be a whole number of bytes/s"),
        (CONNECTION_CREATION_RATE, "1.5", "must be a whole number of connections/s"),
        (CONNECTION_CREATION_RATE, "1k", "not a value for connection_creation_rate"),
        (REQUEST_PERCENTAGE, "10MB", "not a value for request_percentage"),
        (CONTROLLER_MUTATION_RATE, "5%", "not a value for controller_mutation_rate"),
        (CONTROLLER_MUTATION_RATE, "", "not a value for controller_mutation_rate"),
    ],
)
def test_refused_quota_values(key: QuotaKey, text: str, message: str) -> None:
    with pytest.raises(InvalidQuotaError, match=message) as raised:
        parse_quota_value(key, text)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("value", "expect"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (10485760.0, "10485760"),
        (1e22, "10000000000000000000000"),
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (12.5, "12.5"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_numbers_are_written_plainly(value: float, expect: str) -> None:
    assert format_number(value) == expect


@pytest.mark.parametrize("key", QUOTA_KEYS.values(), ids=QUOTA_KEYS)
def test_the_largest_value_of_a_key_reads_as_unlimited(key: QuotaKey) -> None:
    assert format_quota_value(key, parse_quota_value(key, "unlimited")) == "unlimited (explicit)"
    assert format_quota_value(key, 5.0) == "5"
    assert format_quota_value(None, float(LONG_MAX)) == "9223372036854775808"


@pytest.mark.parametrize(
    ("value", "expect"),
    [
        (0, "0 B"),
        (999.96, "1 kB"),
        (999.94, "999.9 B"),
        (10_500_000, "10.5 MB"),
        (999_999, "1 MB"),
        (999_999_999_999, "1 TB"),
        (9.223372036854776e18, "9223000 TB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_for_people(value: float, expect: str) -> None:
    assert format_bytes(value) == expect
