"""Debian's chromium without a window, driven by Selenium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

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
