"""The events of request logs, in packed rows: a client's charges of one quota type in one hour."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from kafka_quotas.pipeline import KafkaRequestLog, pack_events

spark = SparkSession.active()
spark.dataSource.register(KafkaRequestLog)
LOGS = spark.conf.get("spark.kafka_quotas.logs")
LINES = spark.readStream.format("kafka_request_log").option("timeZone", "UTC").load(LOGS)
# Outside of functions, in which Spark 4.2 lets nothing ask for columns, as mapInArrow does.
PACKED = pack_events(LINES.where("odd_reason IS NULL"))


@dp.table(comment="The events of a client, quota type and hour in arrays, with sums and the busiest second.")
def events() -> DataFrame:
    """Read on where the logs ended."""
    return PACKED
