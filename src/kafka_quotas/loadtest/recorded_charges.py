"""The events of one client as they can be simulated and replayed, from the best source that there is."""

from kafka_quotas.loadtest.prediction import Charge, Source
from kafka_quotas.loadtest.result import EntityResult


def recorded_charges(entity: EntityResult) -> tuple[Source, list[Charge]]:
    """The best that is known of what a client's quota was charged with, milliseconds since the start of the load.

    The daemon's log where there is one, else single responses, else acknowledgements with the bytes of the wire.
    """
    recorder = entity.recorder
    if entity.charges:
        return Source.EVENT_LOG, list(entity.charges)
    if recorder is None:
        return Source.ACKNOWLEDGEMENTS, []
    if len(recorder.responses):
        return Source.RESPONSES, [
            Charge(t_ms=each.t_ms, amount=each.charged, throttle_ms=each.throttle_ms, broker=each.broker)
            for each in recorder.responses
        ]
    entries = recorder.trace.entries()
    return Source.ACKNOWLEDGEMENTS, [Charge(t_ms=t_ms, amount=size * entity.wire_ratio) for t_ms, size in entries]
