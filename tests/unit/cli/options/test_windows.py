"""Quota windows: by option, by file, by default, each figure on its own."""

import pytest

from kafka_quotas.cli.options.windows import DEFAULT_ORIGIN, WindowSource, file_source, window_settings
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.model.quota_window import QuotaWindow


def option(name: str, figure: int) -> WindowSource:
    return ("option", {name: str(figure)})


def test_the_default_is_eleven_samples_of_a_second() -> None:
    settings = window_settings()
    assert settings.client == settings.controller == QuotaWindow(samples=11, window_s=1)
    assert (settings.client_origin, settings.controller_origin) == (DEFAULT_ORIGIN, DEFAULT_ORIGIN)


def test_an_option_beats_the_file_and_the_file_beats_the_brokers(tmp_path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nquota.window.num=5\nquota.window.size.seconds = 2\n")
    brokers = ("broker 1", {"quota.window.num": "7", "controller.quota.window.num": "100"})
    settings = window_settings(option("quota.window.num", 3), file_source(file), brokers)
    assert settings.client == QuotaWindow(samples=3, window_s=2)
    assert settings.controller == QuotaWindow(samples=100, window_s=1)
    assert settings.client_origin == f"option, {file}"
    assert settings.controller_origin == f"broker 1, {DEFAULT_ORIGIN}"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "eleven", "", "1_1", "2147483648"])
def test_a_figure_that_is_no_count_is_refused_with_the_file_and_the_name(tmp_path, text: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"quota.window.num={text}\n")
    with pytest.raises(UsageError, match=r"server\.properties: quota\.window\.num must be"):
        window_settings(file_source(file))


def test_a_given_figure_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"option: controller\.quota\.window\.size\.seconds .* not 0"):
        window_settings(option("controller.quota.window.size.seconds", 0))


def test_a_file_without_any_window_setting_is_refused(tmp_path) -> None:
    file = tmp_path / "empty.properties"
    file.write_text("quota.window.nmu=5\n")
    with pytest.raises(UsageError, match="has no window setting"):
        file_source(file)
