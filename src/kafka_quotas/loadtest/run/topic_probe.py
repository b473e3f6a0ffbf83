"""The time from the request for a topic of one partition until metadata show it, probed during a load.

KIP-599 is about this time: a flood of topic changes keeps the controller busy, and the changes of all other clients
wait for it.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.loadtest.result.result import ProbeResult
from kafka_quotas.loadtest.run.topics import TopicAdmin
from kafka_quotas.loadtest.run.watches import RunWatch
from kafka_quotas.wire.client.topics import NewTopic

MAX_AT_ONCE: Final = 100
"""Most probes without a result, beyond which no new one starts: the outstanding ones show the delay."""
_LOOK_S: Final = 0.02


class TopicProbes(RunWatch):
    """Probes that each create a new topic under `prefix`, every `every_s` seconds.

    `opened` returns a connection of its own for each probe, so that none waits for another. At the end, the probes
    without a result get `grace_s` seconds more.
    """

    def __init__(self, opened: Callable[[], TopicAdmin], *, prefix: str, every_s: float, grace_s: float) -> None:
        super().__init__(interval_s=every_s)
        self._opened = opened
        self._prefix = prefix
        self._grace_s = grace_s
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._answers: list[ProbeResult] = []

    @property
    def answers(self) -> tuple[ProbeResult, ...]:
        """The results, in the order in which the probes started."""
        return tuple(sorted(self._answers, key=lambda answer: answer.at_s))

    def ask_until(self, after_s: float) -> None:
        """Wait until `after_s` seconds after the start, while the probes continue.

        The effects of a load on the controller last longer than its responses.
        """
        time.sleep(max(0.0, after_s - self.now_s()))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        deadline_s = time.monotonic() + self._grace_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._over.set()
        for thread in self._threads:
            thread.join()

    def watch(self) -> None:
        """Start the probes, and skip those beyond `MAX_AT_ONCE`."""
        number = 0
        while not self.stop.wait(max(0.0, number * self.interval_s - self.now_s())):
            if sum(thread.is_alive() for thread in self._threads) < MAX_AT_ONCE:
                thread = threading.Thread(target=self._probe, args=(f"{self._prefix}{number}",), daemon=True)
                self._threads.append(thread)
                thread.start()
            number += 1

    def _probe(self, topic: str) -> None:
        at_s = self.now_s()
        try:
            is_there = self._is_made(topic)
        except KafkaQuotasError as error:
            self._answers.append(ProbeResult(at_s=at_s, wait_ms=None, error=error.message))
            return
        wait_ms = (self.now_s() - at_s) * 1000 if is_there else None
        self._answers.append(ProbeResult(at_s=at_s, wait_ms=wait_ms, error="" if is_there else "not visible in time"))

    def _is_made(self, topic: str) -> bool:
        """Create the topic and return whether metadata show it with a leader before the probes end."""
        admin = self._opened()
        try:
            admin.ask_for(NewTopic(topic, 1))
            while not admin.is_led(topic):
                if self._over.wait(_LOOK_S):
                    return False
        finally:
            admin.close()
        return True
