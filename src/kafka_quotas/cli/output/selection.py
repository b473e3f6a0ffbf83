"""Which part of a listing a view asks for, in every form alike."""

from collections.abc import Sequence
from dataclasses import replace

from kafka_quotas.cli.output.json_text import Json
from kafka_quotas.cli.output.listing import Cell, Column, Listing, Output, Table, View, plain_columns
from kafka_quotas.core.errors import UsageError

DEFAULT_ROWS = 100
"""The most rows of changes that a table has where no limit is given: more scroll away what stands before them."""


def selected(listing: Listing, view: View) -> tuple[Listing, int]:
    """Return the part of a listing that a view asks for, and how many rows its limit leaves out.

    The rows count as the view's form counts them. With columns, JSON and YAML have `rows` of these columns only.
    """
    whole = _with_columns(listing, view) if view.columns else listing
    if not view.limit:
        return whole, 0
    if view.form is Output.CSV:
        whole = replace(whole, records=records_of(whole))
    return _first(whole, view.limit), _beyond(whole, view.form, view.limit)


def records_of(listing: Listing) -> Table:
    """Return the rows for machines, which the schema of the listing's noun says if the listing doesn't."""
    if listing.records is not None:
        return listing.records
    # Most runs print a table or a document.
    from kafka_quotas.cli.output.schemas.catalogue import find_schema  # noqa: PLC0415
    from kafka_quotas.cli.output.schemas.flat import flat_rows, headers  # noqa: PLC0415

    schema = find_schema(listing.noun)
    if listing.rows is not None:
        schema = replace(schema, rows=listing.rows)
    return Table(columns=plain_columns(headers(schema)), rows=flat_rows(schema, listing.data))


def _beyond(listing: Listing, form: Output, limit: int) -> int:
    if form in (Output.JSON, Output.YAML):
        items = listing.data.get(listing.items or "")
        rows = len(items) if isinstance(items, list) else 0
    else:
        rows = len((listing.records or listing.table).rows if form is Output.CSV else listing.table.rows)
    return max(0, rows - limit)


def check_columns(view: View, noun: str, *tables: Sequence[Column]) -> None:
    """Check that every column of the view is one of these, or one that machines get of such a document.

    Commands that change a store call it first.
    """
    if not view.columns:
        return
    from kafka_quotas.cli.output.schemas.catalogue import find_schema  # noqa: PLC0415 - as above
    from kafka_quotas.cli.output.schemas.flat import headers  # noqa: PLC0415 - as above

    for name in view.columns:
        _find(
            name, [Table(columns=columns, rows=()) for columns in (*tables, plain_columns(headers(find_schema(noun))))]
        )


def _with_columns(listing: Listing, view: View) -> Listing:
    people, machines = _tables(listing)
    found = [_find(name, people) for name in view.columns]
    exact = [_find(name, machines) for name in view.columns]
    rows = _cells(exact)
    titles = [_named(column.title) for _, _, column in exact]
    documents: list[Json] = [dict(zip(titles, row, strict=True)) for row in rows]
    return Listing(
        noun=f"{listing.noun}.rows",
        data={"rows": documents},
        table=Table(columns=[column for _, _, column in found], rows=_cells(found), caption=listing.table.caption),
        records=Table(columns=plain_columns(titles), rows=rows),
        items="rows",
    )


def _tables(listing: Listing) -> tuple[list[Table], list[Table]]:
    """Return the tables to look for columns in, for people and for machines."""
    records = records_of(listing)
    if listing.apart or len(records.rows) != len(listing.table.rows):
        return [records], [records]
    return [listing.table, records], [records, listing.table]


_Found = tuple[Table, int, Column]


def _find(name: str, tables: Sequence[Table]) -> _Found:
    known: dict[str, _Found] = {}
    for table in tables:
        for index, column in enumerate(table.columns):
            known.setdefault(_named(column.title), (table, index, column))
    found = known.get(_named(name))
    if found is None:
        raise UsageError(f"unknown column: {name!r}", hint=f"the columns are {', '.join(known)}")
    return found


def _named(title: str) -> str:
    """Return a title as machines spell it: `in_words`."""
    return title.lower().replace(" ", "_").replace("-", "_")


def _cells(found: list[_Found]) -> list[list[Cell]]:
    count = max((len(table.rows) for table, _, _ in found), default=0)
    return [[table.rows[row][index] for table, index, _ in found] for row in range(count)]


def _first(listing: Listing, limit: int) -> Listing:
    data = dict(listing.data)
    items = data.get(listing.items or "")
    if listing.items is not None and isinstance(items, list):
        data[listing.items] = items[:limit]
    records = listing.records
    return replace(
        listing,
        data=data,
        table=replace(listing.table, rows=listing.table.rows[:limit]),
        records=None if records is None else replace(records, rows=records.rows[:limit]),
    )
