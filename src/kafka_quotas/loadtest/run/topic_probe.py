"""How long a topic of one partition takes from being asked for until metadata show it, again and again during a load.

What KIP-599 is about: a flood of topic changes keeps the controller busy, and everybody else's wait behind it.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.result.result import ProbeResult
from kafka_quotas.loadtest.run.topics import TopicAdmin
from kafka_quotas.wire.client.topics import WantedTopic

MAX_AT_ONCE: Final = 100
"""Probes without an answer; with more the target is asked no further, and the missing ones tell enough."""
_LOOK_S: Final = 0.02


class TopicProbes:
    """Asks every `every_s` while it is entered, each time for a new topic under `prefix`.

    `opened` gives a connection of its own to each probe, so that none waits for another. Those without an answer at
    the end are given `grace_s` more.
    """

    def __init__(self, opened: Callable[[], TopicAdmin], *, prefix: str, every_s: float, grace_s: float) -> None:
        self._opened = opened
        self._prefix = prefix
        self._every_s = every_s
        self._grace_s = grace_s
        self._over = threading.Event()
        self._asking = threading.Event()
        self._threads: list[threading.Thread] = []
        self._answers: list[ProbeResult] = []
        self._start_s = 0.0
        self._clock = threading.Thread(target=self._ask_on, name="probes", daemon=True)

    @property
    def answers(self) -> tuple[ProbeResult, ...]:
        """The probes in the order in which they were asked."""
        return tuple(sorted(self._answers, key=lambda answer: answer.at_s))

    def ask_until(self, after_s: float) -> None:
        """Nothing; so long after the start it goes on asking, for what a load leaves behind outlasts its answers."""
        time.sleep(max(0.0, self._start_s + after_s - time.monotonic()))

    def __enter__(self) -> Self:
        self._start_s = time.monotonic()
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.set()
        self._clock.join()
        deadline_s = time.monotonic() + self._grace_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(self) -> None:
        number = 0
        while not self._asking.wait(max(0.0, self._start_s + number * self._every_s - time.monotonic())):
            if sum(thread.is_alive() for thread in self._threads) < MAX_AT_ONCE:
                thread = threading.Thread(target=self._probe, args=(f"{self._prefix}{number}",), daemon=True)
                self._threads.append(thread)
                thread.start()
            number += 1

    def _probe(self, topic: str) -> None:
        asked_s = time.monotonic()
        at_s = asked_s - self._start_s
        try:
            is_there = self._is_made(topic)
        except KafkaQuotasError as error:
            self._answers.append(ProbeResult(at_s=at_s, wait_ms=None, error=error.message))
            return
        wait_ms = (time.monotonic() - asked_s) * 1000 if is_there else None
        self._answers.append(ProbeResult(at_s=at_s, wait_ms=wait_ms, error="" if is_there else "not visible in time"))

    def _is_made(self, topic: str) -> bool:
        """Whether metadata showed the topic with a leader before the probes were over."""
        admin = self._opened()
        try:
            admin.ask_for(WantedTopic(topic, 1, -1))
            while not admin.is_led(topic):
                if self._over.wait(_LOOK_S):
                    return False
        finally:
            admin.close()
        return True
