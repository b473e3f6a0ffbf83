"""`kafka-quotas load-test list`: the scenarios that are shipped."""

from kafka_quotas.cli.options.stores import ListingView
from kafka_quotas.cli.output.render import Column, Listing, Table, print_listing
from kafka_quotas.cli.output.view import TABLE_VIEW
from kafka_quotas.commands.load_test.scenarios import ListedScenario, listed_scenarios


def list_(*, output: ListingView = TABLE_VIEW) -> None:
    """List the scenarios that are shipped, what each shows, and what it needs.

    Those that need no real broker run on the embedded cluster with our daemon in front.
    """
    scenarios = listed_scenarios()
    print_listing(
        Listing(
            noun="load-scenarios",
            items="scenarios",
            data={"scenarios": [_document(each) for each in scenarios]},
            table=Table(
                columns=[
                    Column(title="scenario", whole=True),
                    Column(title="needs", whole=True),
                    Column(title="s", figures=True),
                    Column(title="shows"),
                ],
                rows=[[each.name, _needs(each), round(each.seconds), each.title] for each in scenarios],
                caption="s: seconds under load; run one with: kafka-quotas load-test run SCENARIO",
            ),
            records=Table(
                columns=[Column(title=title) for title in _document(scenarios[0])],
                rows=[list(_document(each).values()) for each in scenarios],
            ),
        ),
        output,
    )


def _needs(scenario: ListedScenario) -> str:
    return "real broker" if scenario.needs_broker else "daemon" if scenario.needs_daemon else "-"


def _document(scenario: ListedScenario) -> dict[str, str | int | float | bool]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "source": scenario.source,
        "needs_broker": scenario.needs_broker,
        "needs_daemon": scenario.needs_daemon,
        "clients": scenario.clients,
        "seconds": scenario.seconds,
        "scales": scenario.scales,
    }
