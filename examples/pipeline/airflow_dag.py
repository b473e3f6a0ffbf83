"""The pipeline as a DAG of Airflow (2.9 or later, with `apache-airflow-providers-apache-spark`), once a day.

Tasks submit the pipeline's program to the cluster of the connection `spark_default`. Where that runs the libraries must
be installed, or `--conf spark.archives` ships them. Each task may run again: an ingest reads only new lines, and the
others replace their rows of the same days.
"""

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from airflow.decorators import dag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

LOGS = "s3a://logs/{broker_id}/*"
LAKE = "s3a://lake"
PROGRAM = Path(find_spec("kafka_quotas.pipeline").origin).with_name("__main__.py")
JOBS = {
    "ingest": ["--source", LOGS, "--timezone", "UTC", "--out", f"{LAKE}/traffic"],
    "usage": [f"{LAKE}/traffic", "--out", f"{LAKE}/usage"],
    "replay": [f"{LAKE}/traffic", "--quotas", "/etc/kafka-quotas/proposal.yaml", "--out", f"{LAKE}/replay"],
    "recommend": [f"{LAKE}/traffic", "--out", f"{LAKE}/recommendation"],
}


@dag(
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
)
def kafka_quotas():
    """Read the new logs, then run the jobs on what there is."""
    tasks = {
        job: SparkSubmitOperator(
            task_id=job,
            application=str(PROGRAM),
            application_args=[job, *options, "--engine", "spark"],
            packages="io.delta:delta-spark_2.13:4.0.0",  # a cluster that reads S3 has those for it
        )
        for job, options in JOBS.items()
    }
    tasks["ingest"] >> [each for job, each in tasks.items() if job != "ingest"]


kafka_quotas()
