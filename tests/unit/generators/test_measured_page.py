"""The part of a scenario's page that a run writes, and the part that people write."""

from dataclasses import replace

import pytest
from generators.measured_page import Measurement, differences, measured_page, page_command

PAGE = """# ratio

## The load

```
kafka-quotas load-test run ratio --broker-jars DIR
```

## What came out

Measured long ago.

```
old
```
"""
RUN = Measurement(
    name="ratio",
    digest="0",
    exit_code=0,
    output="18 s of load\nnarrow: rate met: 0.997\n",
    day="1 May 2027",
    machine="4 cores and 8 GiB of memory",
    load_average=0.25,
    other_cores=0.04,
    versions="Kafka 4.3.1",
    elapsed_s=31.4,
)


def test_the_command_is_that_of_the_page() -> None:
    assert page_command(PAGE) == ["load-test", "run", "ratio", "--broker-jars", "DIR"]


@pytest.mark.parametrize("page", ["# ratio\n", PAGE + PAGE])
def test_a_page_has_one_command(page: str) -> None:
    with pytest.raises(ValueError, match="one"):
        page_command(page)


def test_only_what_came_out_is_replaced() -> None:
    page = measured_page(PAGE, RUN)

    assert page.startswith(PAGE.partition("Measured")[0])
    assert page.endswith("\n```\n18 s of load\nnarrow: rate met: 0.997\n```\n")
    assert "old" not in page
    assert measured_page(page, RUN) == page


def test_a_page_says_when_and_where_it_was_measured() -> None:
    page = measured_page(PAGE, RUN)

    assert (
        "Measured on 1 May 2027 on 4 cores and 8 GiB of memory, of which other programs took 0.04 cores (load average "
        "0.25 at the start), with Kafka 4.3.1, in 31 s.\n" in page
    )


def test_a_page_shows_that_a_run_did_not_pass() -> None:
    assert "in 31 s. Exit code 1.\n" in measured_page(PAGE, replace(RUN, exit_code=1))


def test_a_page_without_the_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="What came out"):
        measured_page("# ratio\n", RUN)


def test_a_run_that_comes_out_as_its_page_shows_differs_in_nothing() -> None:
    assert differences(measured_page(PAGE, RUN), RUN) == ()
    assert differences(PAGE, RUN) == ()
    assert differences(measured_page(PAGE, RUN), replace(RUN, output="a: accounting met: 4 due\n")) == ()


def test_a_run_that_comes_out_otherwise_says_in_what() -> None:
    page = measured_page(
        PAGE,
        replace(
            RUN,
            exit_code=1,
            output="a: rate met: 0.99\nexpectation: met: x > 0: a 3\nexpectation: met: y > 0: a 3\n"
            "control: isolation undecided: p99\ncontrol run: met: it fails\n",
        ),
    )
    now = replace(
        RUN,
        output="a: rate met: 0.98\nexpectation: met: x > 0: a 4\nexpectation: not met: y > 0: a 0\n"
        "control: isolation met: p99\ncontrol run: not met: it passes\na: throttle time not met: 3 s\n",
    )

    assert differences(page, now) == (
        "y > 0: met on the page, not met now",
        "control: isolation: undecided on the page, met now",
        "control run: met on the page, not met now",
        "a: throttle time: met on the page, not met now",
        "exit code: 1 on the page, 0 now",
    )
