"""How load tests write their figures for people."""


def duration_text(microseconds: float) -> str:
    """A duration with three digits at most below 1000 s: `820 us`, `12.3 ms`, `4.56 s`, `49950 s`."""
    if microseconds >= 1e9:
        return f"{microseconds / 1e6:.0f} s"
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.0f} us"
