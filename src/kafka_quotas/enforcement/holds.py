"""Why a direction of a connection stands still.

Each reason is one bit, for several may hold at once: when the kernel takes bytes again, a throttled client must stay
muted. Bytes move again when the last bit is gone. Plain ints, because they are tested on every chunk.
"""

from typing import Final

BACKPRESSURE: Final = 1
"""The other side does not take bytes as fast as they come."""
THROTTLED: Final = 2
"""The client is over a quota and muted until a set time."""
DRAINING: Final = 8
"""The daemon ends: no new request is taken."""
AWAITING: Final = 16
"""The answer to the last request has to be seen before the next one may pass: it decides on a delay, or carries one."""
DELAYED: Final = 32
"""A response is held back for the throttle time (KIP-13's style)."""

NO_NEW_FRAME: Final = THROTTLED | DRAINING | AWAITING | DELAYED
"""The reasons that let a frame end but none begin."""
