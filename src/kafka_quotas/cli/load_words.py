"""How load tests write their figures for people."""


def duration_text(microseconds: float) -> str:
    """A duration with three digits at most: `820 us`, `12.3 ms`, `4.56 s`."""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.0f} us"
