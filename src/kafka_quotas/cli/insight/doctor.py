"""`kafka-quotas doctor`: what is odd in a store."""

import sys
from contextlib import closing

from kafka_quotas.cli.framework.store_choice import print_static_note
from kafka_quotas.cli.options.stores import ListingView, StoreOptions
from kafka_quotas.cli.output.document import document_of
from kafka_quotas.cli.output.render import TABLE_VIEW, Listing, Table, columns, print_listing, write
from kafka_quotas.commands.insight.doctor import DoctorResult
from kafka_quotas.commands.insight.doctor import doctor as run_doctor


def doctor(*, store: StoreOptions, output: ListingView = TABLE_VIEW) -> int:
    """Check stored quotas for problems: how bad each is, and what to do.

    Looked for: quotas without effect, names that are easily confused, one address under two names, values that stop
    clients or are below one batch or fetch, request percentages above the brokers' capacity; in a cluster also quota
    callbacks, replication throttles left behind by a reassignment, keys that a broker is too old for, and empty
    znodes. The exit code is 1 where a finding is an error, else 0.
    """
    choice = store.choose()
    with closing(choice.open_existing()) as opened:
        result = run_doctor(opened, settings=choice.settings())
    if result.findings or not output.is_table:
        print_listing(_listing(result), output)
    for line in result.not_looked_at:
        write(f"note: {line}", sys.stderr)
    write(_summary(result), sys.stderr)
    print_static_note(result.store_url)
    return int(result.has_errors)


def _summary(result: DoctorResult) -> str:
    count = len(result.findings)
    found = "no problem" if not count else f"{count} finding{'' if count == 1 else 's'}"
    entities = f"{result.entries} {'entity' if result.entries == 1 else 'entities'}"
    return f"note: {found} among {entities} in {result.store_url}"


def _listing(result: DoctorResult) -> Listing:
    return Listing(
        noun="doctor",
        items="findings",
        data=document_of(result),
        table=Table(
            columns=columns("severity!, about, finding, remedy"),
            rows=[(each.severity.value, each.about, each.sentence, each.remedy) for each in result.findings],
        ),
    )
