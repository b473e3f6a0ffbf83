"""What requests cost where nobody calibrated: measured with `daemon calibrate` on one broker of Kafka 4.3."""

from typing import Final

from kafka_quotas.core.cost_model import ApiCost, CostModel

DEFAULT_COSTS: Final = CostModel(source="default", other=ApiCost(request_nanos=200_000))
