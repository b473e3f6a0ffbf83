"""The pages in a real browser: a daemon's own, with a client-id that is a script, in light, dark and on a phone."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver import Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from tests.support.brokers.fake_broker import connected, fake_broker, receive_frame
from tests.support.daemon.pinged import throttling_broker
from tests.support.daemon.process import DaemonProcess, running_daemon, store_url
from tests.support.frames.enforcement import produce
from tests.support.processes.awaiting import await_true
from tests.support.processes.run_cli import run_cli

from kafka_quotas.commands.web.load_page import LoadPage, served
from kafka_quotas.enforcement.config.address import Address
from kafka_quotas.loadtest.plan.plan import ClientLoad, ClientName
from kafka_quotas.loadtest.plan.workload import Workload
from kafka_quotas.loadtest.run.runner import ClientProgress, RunProgress

_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser that keeps its messages.

    Where none is installed the test is skipped.
    """
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser is installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def looks(browser: webdriver.Chrome, *, width: int = 1200, dark: bool = False) -> None:
    """Give the browser a width in pixels and the reader's choice of colours."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def messages(browser: webdriver.Chrome) -> list[str]:
    """What the browser complained of since the last call, such as scripts that the page's policy forbids."""
    return [entry["message"] for entry in browser.get_log("browser")]


HOSTILE = "<script>document.title=1</script><svg/onload=alert(1)>" + "x" * 140


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def environment(folder: Path) -> dict[str, str]:
    return {"KAFKA_QUOTAS_STORE": store_url(folder), "KAFKA_QUOTAS_JOURNAL": str(folder / "journal.jsonl")}


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def daemon(browser: webdriver.Chrome, folder: Path, environment: dict[str, str]) -> Iterator[DaemonProcess]:
    """A daemon at which a client with a hostile name waits for the end of a long throttle time."""
    for names, quota in (
        (("--client", HOSTILE), "1kB"),
        (("--user", "alice", "--client", HOSTILE), "5MB"),
        (("--client-default",), "1GB"),
    ):
        changed = run_cli(
            "alter", *names, "--add-config", f"producer_byte_rate={quota}", "--reason", HOSTILE, environment=environment
        )
        assert changed[0] == 0, changed
    with ExitStack() as stack:
        broker = stack.enter_context(fake_broker(throttling_broker))
        running = stack.enter_context(
            running_daemon(
                folder, upstream=broker.address, options=["--metrics-port", "127.0.0.1:0"], environment=environment
            )
        )
        client = stack.enter_context(connected(running.bootstrap))
        client.sendall(produce(1, size=100_000, client_id=HOSTILE))
        receive_frame(client)
        running.wait_until(lambda status: bool(status.throttled))
        yield running


def opened(browser: webdriver.Chrome, url: str) -> None:
    """Open a page and wait until it has its figures."""
    messages(browser)
    browser.get(url)
    await_true(lambda: "daemon " in text(browser, "origin"), "the page shows its figures", timeout_s=60)


def text(browser: webdriver.Chrome, part: str) -> str:
    shown: str = browser.execute_script("return document.getElementById(arguments[0])?.innerText ?? ''", part)
    return shown


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (400, False), (400, True)])
def test_the_page_shows_who_is_throttled_by_which_quota(
    browser: webdriver.Chrome, daemon: DaemonProcess, width: int, dark: bool
) -> None:
    looks(browser, width=width, dark=dark)
    opened(browser, daemon.metrics_url.removesuffix("metrics"))
    for part in ("waiting", "hour", "rows"):
        shown = " ".join(text(browser, part).split())
        assert HOSTILE in shown, part
        assert f"set on client-id {HOSTILE}" in shown, part
    await_true(lambda: HOSTILE in text(browser, "entries"), "the journal is there")
    assert "no trouble" in text(browser, "daemon")
    assert browser.title == "Kafka quotas", "a client-id is no script"
    assert browser.find_elements(By.CSS_SELECTOR, "main [onload], main script") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "nothing sticks out"
    right = "return document.querySelector('#rows th:last-child').getBoundingClientRect().right"
    assert width < 600 or browser.execute_script(right) <= width, "no name pushes a column out of the page"
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", paper)[:3]))
    assert (brightness < 200) is dark
    assert messages(browser) == []


def test_the_effective_answer_is_had_by_keyboard_alone(browser: webdriver.Chrome, daemon: DaemonProcess) -> None:
    looks(browser)
    opened(browser, daemon.metrics_url.removesuffix("metrics"))
    for _ in range(40):
        # A keyboard's keys go to what has the focus, also while the page draws that anew.
        ActionChains(browser).send_keys(Keys.TAB).perform()
        if browser.switch_to.active_element.get_attribute("id") == "user":
            break
    ActionChains(browser).send_keys("alice", Keys.TAB).perform()
    ActionChains(browser).send_keys(HOSTILE, Keys.ENTER).perform()
    await_true(lambda: "5 MB/s" in text(browser, "effective"), "the answer")
    assert f"takes precedence over client-id {HOSTILE} (1 kB/s)" in text(browser, "effective")


def test_quotas_are_found_by_a_part_of_a_name(browser: webdriver.Chrome, daemon: DaemonProcess) -> None:
    opened(browser, daemon.metrics_url.removesuffix("metrics"))
    await_true(lambda: "1 GB/s" in text(browser, "stored"), "all quotas")
    browser.find_element(By.ID, "text").send_keys("ALICE")
    await_true(lambda: "1 GB/s" not in text(browser, "stored"), "some quotas")
    assert "user alice" in text(browser, "stored")


def test_the_command_serves_the_same_page_and_outlives_the_daemon(
    browser: webdriver.Chrome, folder: Path, environment: dict[str, str], daemon: DaemonProcess
) -> None:
    """Last, for it ends the daemon."""
    command = [sys.executable, "-m", "kafka_quotas", "ui", "--listen", "0", "--control", str(daemon.control)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}) as page:
        try:
            assert page.stderr is not None
            match = re.search(r"http://127\.0\.0\.1:\d+/", page.stderr.readline())
            assert match is not None
            opened(browser, match[0])
            assert HOSTILE in " ".join(text(browser, "waiting").split())
            daemon.send(signal.SIGKILL)
            await_true(lambda: "no daemon answers" in text(browser, "trouble"), "what is wrong")
            assert "user alice" in text(browser, "stored"), "the store is read all the same"
            assert text(browser, "figures").count("not known") == 4, "nothing is said of rates that can't be read"
            assert {text(browser, part) for part in ("waiting", "hour", "rows")} == {"Not known."}
            page.terminate()
            await_true(lambda: "does not answer" in text(browser, "trouble"), "that nothing answers")
            assert page.wait(60) == 0
            assert page.stderr.read() == ""
        finally:
            page.kill()


def test_a_load_test_shows_rates_against_their_bounds_and_then_that_it_has_ended(browser: webdriver.Chrome) -> None:
    page = LoadPage(f"load-test {HOSTILE}")
    load = ClientLoad(name=ClientName(user=None, client_id=HOSTILE), workload=Workload.PRODUCE, topic="t", quota=2e6)
    looks(browser, width=400)
    with served(page, Address(host="127.0.0.1", port=0)) as address:
        browser.get(f"http://{address}/")
        await_true(lambda: "preparing" in text(browser, "phase"), "the run is prepared", timeout_s=60)
        for elapsed_s, rate in ((1.0, 9e6), (2.0, 2e6), (3.0, 1.9e6)):
            client = ClientProgress(entity=load, rate=rate, acked=1, waiting=0, throttle_count=3, throttle_sum_ms=900.0)
            page.update(RunProgress(elapsed_s=elapsed_s, total_s=10.0, warming_up=False, entities=(client,)))
        await_true(lambda: "3 of 10 s" in text(browser, "phase"), "the load runs", timeout_s=60)
        shown = " ".join(text(browser, "charts").split())
        assert f"{HOSTILE} produces 1.9 MB/s, 95% of its quota of 2 MB/s" in shown
        assert len(browser.find_elements(By.CSS_SELECTOR, "svg.chart circle title")) == 3, "each point has a tooltip"
        assert browser.find_elements(By.CSS_SELECTOR, "main [onload], main script") == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    await_true(lambda: "has ended" in text(browser, "trouble"), "that it has ended", timeout_s=60)
