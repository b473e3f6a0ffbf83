"""The jars with which Spark reads topics: their coordinates follow from the PySpark that is installed."""

from importlib.metadata import version

from kafka_quotas.core.errors import KafkaQuotasError

_ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def connector_packages(given: tuple[str, ...]) -> tuple[str, ...]:
    """The Maven coordinates: those that were given, else Spark's Kafka source in PySpark's own version."""
    return given or (f"{_ARTIFACT}:{version('pyspark')}",)


def missing_connector(packages: tuple[str, ...], error: KafkaQuotasError) -> KafkaQuotasError:
    """What to say where Spark did not start with these packages: most often they could not be fetched."""
    return KafkaQuotasError(
        f"Spark did not start with {', '.join(packages)}: can these jars be fetched, with all they depend on?",
        hint=f"{error.hint}; --packages takes another version, --spark-conf spark.jars=FILES what is there already",
    )
