"""Buckets that may have requests in common, by SQL.

A bucket has an empty name where its requests are of any user or client-id. Two may have a request in common where their
users and their client-ids are equal, or empty in one of them.
"""

from collections.abc import Sequence
from typing import Final

_FOUR: Final = "(VALUES (true, true), (true, false), (false, true), (false, false)) AS four (takes_user, takes_client)"
_TAKEN: Final = """CASE WHEN takes_user THEN user ELSE '' END AS one_user,
    CASE WHEN takes_client THEN client_id ELSE '' END AS one_client"""


def common_requests(buckets: str, figures: Sequence[str]) -> str:
    """Return a query for the sums of figures over all buckets that may have requests in common with each.

    Figures are summed by user and client-id, by either, and over all. A bucket asks for the sums by the names that it
    has itself: of its own, and of those that are empty in other buckets.

    Args:
        buckets: Rows with `user`, `client_id`, whole figures, and two texts: their `part`, and the part that `asks`
            names, where those are that they may have requests in common with.
        figures: The columns to sum up.

    Returns:
        SQL for rows with `asks`, `user` and `client_id` of buckets with such others, each once, and the sums.
    """
    sums = ", ".join(f"CAST(sum({each}) AS BIGINT) AS {each}" for each in figures)
    return f"""SELECT asks, user, client_id, {sums}
        FROM (SELECT asks, user, client_id, user <> '' AS by_user, client_id <> '' AS by_client, {_TAKEN}
                FROM (SELECT DISTINCT asks, user, client_id FROM {buckets}) AS wanted CROSS JOIN {_FOUR}
                WHERE (user <> '' OR NOT takes_user) AND (client_id <> '' OR NOT takes_client)) AS asked
            JOIN (SELECT part AS asks, takes_user AS by_user, takes_client AS by_client, one_user, one_client, {sums}
                FROM (SELECT *, {_TAKEN} FROM {buckets} CROSS JOIN {_FOUR}) AS leveled
                GROUP BY part, takes_user, takes_client, one_user, one_client) AS given
            USING (asks, by_user, by_client, one_user, one_client)
        GROUP BY asks, user, client_id"""
