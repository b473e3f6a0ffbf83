"""What requests cost where nobody calibrated: measured with `daemon calibrate` on one broker of Kafka 4.3.1.

The machine had two cores and much else to do; each figure is the least of three runs. Take it for an order of
magnitude, and calibrate.
"""

from typing import Final

from kafka_quotas.core.cost_model import ApiCost, CostModel

_REQUEST_US: Final = {
    0: 154,  # Produce
    1: 180,  # Fetch
    2: 133,  # ListOffsets
    3: 124,  # Metadata
    8: 117,  # OffsetCommit
    9: 80,  # OffsetFetch
    10: 80,  # FindCoordinator
    11: 98,  # JoinGroup
    12: 121,  # Heartbeat
    14: 83,  # SyncGroup
    15: 104,  # DescribeGroups
    16: 107,  # ListGroups
    18: 57,  # ApiVersions
    32: 425,  # DescribeConfigs
}
_REQUEST_BYTE_NS: Final = {0: 2.0}
_RESPONSE_BYTE_NS: Final = {1: 0.22}

DEFAULT_COSTS: Final = CostModel(
    source="default: Kafka 4.3.1 on two busy cores",
    other=ApiCost(request_nanos=112_000),
    apis={
        key: ApiCost(
            request_nanos=1000.0 * us,
            request_byte_nanos=_REQUEST_BYTE_NS.get(key, 0.0),
            response_byte_nanos=_RESPONSE_BYTE_NS.get(key, 0.0),
        )
        for key, us in _REQUEST_US.items()
    },
)
