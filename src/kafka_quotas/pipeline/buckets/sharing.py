"""Buckets that may have requests in common, by SQL.

A bucket has an empty name where its requests are of any user or client-id. Two may have a request in common where their
users and their client-ids are equal, or empty in one of them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

_NAMES: Final = "user, client_id"
_LEVELS: Final = {"both": "user, client_id", "of_user": "user, ''", "of_client": "'', client_id", "anybody": "'', ''"}
"""What figures are summed by, and its names in SQL."""
_BOTH: Final = (("both", _NAMES), ("both", "user, ''"), ("both", "'', client_id"), ("both", "'', ''"))
_WANTED: Final = (
    ("user <> '' AND client_id <> ''", _BOTH),
    ("user <> '' AND client_id = ''", (("of_user", "user, ''"), ("of_user", "'', ''"))),
    ("user = '' AND client_id <> ''", (("of_client", "'', client_id"), ("of_client", "'', ''"))),
    ("user = '' AND client_id = ''", (("anybody", "'', ''"),)),
)
"""Which sums fit a bucket, by which of its names are empty."""


def common_requests(buckets: str, figures: Sequence[str]) -> str:
    """Return a query for the sums of figures over all buckets that may have requests in common with each.

    Args:
        buckets: Rows with `user`, `client_id`, whole figures, and two texts: their `part`, and the part that `asks`
            names, where those are that they may have requests in common with.
        figures: The columns to sum up.

    Returns:
        SQL for rows with `asks`, `user` and `client_id` of buckets with such others, each once, and the sums.
    """
    return f"""SELECT asks, user, client_id, {_sums(figures)}
        FROM ({" UNION ALL ".join(_asked(buckets))}) AS asked
            JOIN ({" UNION ALL ".join(_given(buckets, figures))}) AS given
            ON asks = part AND asked_level = given_level AND asked_user = given_user AND asked_client = given_client
        GROUP BY asks, user, client_id"""


def _sums(figures: Sequence[str]) -> str:
    return ", ".join(f"CAST(sum({each}) AS BIGINT) AS {each}" for each in figures)


def _given(buckets: str, figures: Sequence[str]) -> Iterator[str]:
    for level, names in _LEVELS.items():
        user, client = names.split(", ")
        yield f"""SELECT part, given_level, given_user, given_client, {_sums(figures)}
            FROM (SELECT *, '{level}' AS given_level, {user} AS given_user, {client} AS given_client FROM {buckets})
                AS leveled
            GROUP BY part, given_level, given_user, given_client"""


def _asked(buckets: str) -> Iterator[str]:
    distinct = f"(SELECT DISTINCT asks, user, client_id FROM {buckets}) AS wanted"
    for condition, levels in _WANTED:
        for level, names in levels:
            user, client = names.split(", ")
            yield f"""SELECT asks, user, client_id, '{level}' AS asked_level, {user} AS asked_user,
                {client} AS asked_client FROM {distinct} WHERE {condition}"""
