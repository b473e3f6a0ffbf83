"""What users are told of Spark's errors, from texts that Spark 4.0 gave."""

from pathlib import Path

import pytest

from kafka_quotas.core.errors import KafkaQuotasError
from kafka_quotas.pipeline.engine.spark_session import failure_of, spark_errors

LOG = Path("spark.log")
CALLED = "An error occurred while calling o96.getResult.\n: org.apache.spark.SparkException: Exception thrown\n"
ABORTED = (
    "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, "
    "most recent failure: Lost task 0.3 in stage 0.0 (TID 9) "
)
HERE, THERE = "(localhost executor driver): ", "(10.0.0.7 executor 3): "
DRIVER = "\n\tat org.apache.spark.scheduler\n\nDriver stacktrace:\n\tat org.apache.spark.scheduler"
HEAP = "scala.MatchError: java.lang.OutOfMemoryError: Java heap space (of class java.lang.OutOfMemoryError)"
CRASHED = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'x' to 'true'"
    f"{DRIVER}\nCaused by: java.io.EOFException\n\t... 24 more"
)
LOST = "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: "
RESULTS = (
    "Total size of serialized results of 2 tasks (16.0 MiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)"
)
NULL = 'Cannot invoke "org.apache.spark.sql.SparkSession.x()" because the return value of "SparkPlan.session()" is null'
TRACEBACK = (
    "\n  An exception was thrown from the Python worker. Please see the stack trace below.\nTraceback (most recent"
)
ENDED = (
    "26/11/23 21:06:43 ERROR Executor: Exception in task 1.0 in stage 0.0 (TID 1)\n"
    "java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.arrow.vector.VarBinaryVector.get\n"
    "26/11/23 21:06:44 ERROR SparkUncaughtExceptionHandler: Uncaught exception in thread Thread[Executor task]\n"
    "java.lang.OutOfMemoryError: Java heap space\n"
)
DIRECT = (
    "26/11/23 21:04:16 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)\n"
    "org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.\n\tat io.netty.buffer\n"
    "Caused by: io.netty.util.internal.OutOfDirectMemoryError: failed to allocate 268435456 byte(s) of direct memory\n"
)
RAN_AGAIN = (
    "26/11/23 21:10:56 ERROR TaskSchedulerImpl: Lost executor 0 on 10.0.0.7: Command exited with code 52\n"
    "26/11/23 21:10:56 WARN TaskSetManager: Lost task 0.0 (10.0.0.7 executor 0): java.lang.OutOfMemoryError: heap\n"
)


class Py4JNetworkError(Exception):
    """py4j's class is told by its name, for the module is loaded with PySpark only."""


@pytest.mark.parametrize(
    ("error", "logged", "why", "hint"),
    [
        (
            RuntimeError(f"{CALLED}{ABORTED}{HERE}{HEAP}{DRIVER}\nCaused by: {HEAP}\n\tat x"),
            "",
            "its Java ran out of memory (Java heap space)",
            "spark.driver.memory=4g",
        ),
        (
            RuntimeError(f"{CALLED}{ABORTED}{THERE}java.lang.OutOfMemoryError: GC overhead limit exceeded{DRIVER}"),
            "",
            "an executor's Java ran out of memory (GC overhead limit exceeded)",
            "spark.executor.memory=4g",
        ),
        (RuntimeError(f"{CALLED}Caused by: java.lang.NullPointerException: {NULL}"), ENDED, "(Java heap space)", ""),
        (
            RuntimeError("org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down"),
            ENDED,
            "its Java ran out of memory (Java heap space)",
            "spark.driver.memory",
        ),
        (ConnectionRefusedError(111, "Connection refused"), DIRECT, "memory (Failure allocating buffer)", ""),
        (Py4JNetworkError("Error while sending or receiving"), DIRECT, "its Java ran out of memory", ""),
        (RuntimeError(f"{CALLED}{ABORTED}{HERE}{CRASHED}"), ENDED, "its Java ran out of memory", ""),
        (RuntimeError("py4j.reflection.TypeUtil.isInstanceOf does not exist in the JVM"), "", "its Java ended", None),
        (RuntimeError(f"{CALLED}{ABORTED}{HERE}{CRASHED}"), "", "a Python worker was killed or crashed", "local[1]"),
        (
            RuntimeError(f"{TRACEBACK}\n  File x\n    list(it)\nMemoryError\n"),
            "",
            "a Python worker ran out",
            "local[1]",
        ),
        (
            RuntimeError(f"{TRACEBACK}\nnumpy._core._exceptions._ArrayMemoryError: Unable to"),
            "",
            "a Python worker ran",
            "",
        ),
        (
            RuntimeError(f"{CALLED}{ABORTED}{THERE}{LOST}Command exited with code 137{DRIVER}"),
            "",
            "an executor was killed",
            "spark.executor.memoryOverhead",
        ),
        (
            RuntimeError(f"{CALLED}{ABORTED}{THERE}{LOST}Command exited with code 52{DRIVER}"),
            "",
            "an executor's Java ran out of memory",
            "spark.executor.memory=4g",
        ),
        (
            RuntimeError(f"{CALLED}{ABORTED}{THERE}{LOST}worker lost{DRIVER}"),
            RAN_AGAIN,
            "an executor was lost: worker lost",
            "its own log",
        ),
        (
            RuntimeError(f"{CALLED}Caused by: org.apache.spark.SparkException: Job aborted due to {RESULTS}{DRIVER}"),
            "",
            "the results of 2 tasks (16.0 MiB) are more than spark.driver.maxResultSize",
            "maxResultSize=2g",
        ),
        (RuntimeError(f"{TRACEBACK}\n  File x\nAssertionError\n"), "", "AssertionError", None),
    ],
)
def test_what_was_short_is_named_with_the_setting_that_gives_more(
    error: Exception, logged: str, why: str, hint: str | None
) -> None:
    told = failure_of(error, logged)
    assert why in told[0]
    assert "\n" not in told[0]
    assert told[1] is None if hint is None else hint in str(told[1])


def test_the_log_counts_from_where_the_operation_began(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(ENDED)  # of an earlier run
    with (
        pytest.raises(KafkaQuotasError, match=r"while reading: its Java ended$"),
        spark_errors("reading", log_file=log),
    ):
        raise ConnectionResetError
    with pytest.raises(KafkaQuotasError, match="its Java ran out of memory"), spark_errors("reading", log_file=log):  # noqa: PT012
        with log.open("a") as file:
            file.write(ENDED)
        raise ConnectionResetError


def test_sparks_errors_say_what_was_the_matter_not_through_which_layers() -> None:
    text = "An error\norg.apache.spark.SparkException: Job aborted\n  File x\nFileNotFoundError: no /a\n\tat java.x"
    with pytest.raises(KafkaQuotasError, match="while reading: FileNotFoundError: no /a") as caught:  # noqa: SIM117
        with spark_errors("reading", log_file=LOG):
            raise RuntimeError(text)
    assert caught.value.hint == "see spark.log"
    suppressed = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n\tat org.a\n"
        "\tSuppressed: org.apache.spark.util.OriginalTryStackTraceException: Full stacktrace\n"
        "\t\tCaused by: java.io.IOException: again\nCaused by: java.lang.ClassCastException: cannot assign x\n\tat java"
    )
    with pytest.raises(KafkaQuotasError, match=r"while reading: java\.lang\.ClassCastException: cannot assign x$"):  # noqa: SIM117
        with spark_errors("reading", log_file=LOG):
            raise RuntimeError(suppressed)
    missing = "An error occurred while calling o1.x.\n: software.amazon.awssdk.NoSuchBucketException: there is none"
    with pytest.raises(KafkaQuotasError, match="NoSuchBucketException: there is none") as caught:  # noqa: SIM117
        with spark_errors("reading", log_file=LOG):
            raise RuntimeError(missing)
    assert (caught.value.hint or "").startswith("make the bucket, or check its name")
    with pytest.raises(KafkaQuotasError, match="no room left while reading"):  # noqa: SIM117
        with spark_errors("reading", log_file=LOG):
            raise RuntimeError("java.io.IOException: No space left on device\n at x")
