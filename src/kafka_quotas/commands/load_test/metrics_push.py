"""The tool's own series while a load test runs, pushed over OTLP by a thread of its own."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final, Self

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.run.otlp_document import otlp_document
from kafka_quotas.loadtest.run.runner import RunProgress, Watcher
from kafka_quotas.loadtest.run.watches import RunWatch

PUSH_EVERY_S: Final = 5.0
_TIMEOUT_S: Final = 5.0
_PATH: Final = "/v1/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpReceiver:
    """Where metrics are pushed to."""

    url: str
    """The address of a collector (HTTP or HTTPS), with or without `/v1/metrics`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers of each request, which may hold a token."""

    def post(self, document: Mapping[str, Any]) -> None:
        """Send a request.

        Raises:
            KafkaQuotasError: The receiver can't be reached, or refuses it.
        """
        url = self.url if self.url.endswith(_PATH) else self.url.rstrip("/") + _PATH
        headers = {"Content-Type": "application/json", **self.headers}
        hint = "an OTLP receiver over HTTP, such as http://collector:4318"
        try:
            request = urllib.request.Request(url, json.dumps(document).encode(), headers)  # noqa: S310 - checked below
            if request.type not in ("http", "https"):
                raise KafkaQuotasError(f"can't push metrics to {url}: it is not an HTTP address", hint=hint)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - HTTP
                response.read()
        except (OSError, HTTPException, ValueError) as error:
            reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else str(error)
            raise KafkaQuotasError(f"can't push metrics to {url}: {reason}", hint=hint) from error


class MetricsPush(RunWatch):
    """The pushes of one scenario during the context, none without a receiver.

    Entering the context sends an empty request: an error is better before a run than after it. Later failures are
    counted, and `warn` is called once at the end.
    """

    def __init__(self, receiver: OtlpReceiver | None, *, title: str, warn: Callable[[str], None]) -> None:
        super().__init__(interval_s=PUSH_EVERY_S)
        self._receiver = receiver
        self._title = title
        self._warn = warn
        self._latest: tuple[RunProgress, int] | None = None
        self._failures = 0
        self._last_failure = ""

    def watcher(self, then: Watcher | None) -> Watcher | None:
        """Return a watcher that keeps the latest state for the next push, and calls `then` too."""
        if self._receiver is None:
            return then

        def look(progress: RunProgress) -> None:
            self._latest = progress, time.time_ns()
            if then is not None:
                then(progress)

        return look

    def __enter__(self) -> Self:
        if self._receiver is not None:
            self._receiver.post({"resourceMetrics": []})
        return super().__enter__()

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        self._push()
        if self._failures:
            self._warn(f"metrics could not be pushed {self._failures} times: {self._last_failure}")

    def watch(self) -> None:
        """Push the latest state every few seconds until the end."""
        while self._receiver is not None and not self.stop.wait(self.interval_s):
            self._push()

    def _push(self) -> None:
        latest, self._latest = self._latest, None
        if self._receiver is None or latest is None:
            return
        progress, now_ns = latest
        try:
            self._receiver.post(otlp_document(progress, now_ns=now_ns, title=self._title))
        except KafkaQuotasError as error:
            self._failures += 1
            self._last_failure = error.message
