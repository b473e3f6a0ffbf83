"""The pipeline's examples that are only read: a DAG of Airflow, whose commands the program knows."""

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from generators.documentation.documents import commands

from kafka_quotas.cli.main import PROGRAM

DAG = Path(__file__).parents[2] / "examples" / "pipeline" / "airflow_dag.py"
COMMANDS: dict[str, Any] = {str(context.command_path): (command, context) for command, context in commands()}


class Task(SimpleNamespace):
    """Stands for one of Airflow's, which is not installed here."""

    def __rshift__(self, others: "list[Task]") -> None:
        self.later = [each.task_id for each in others]


def test_the_tasks_of_the_dag_are_commands_in_their_order() -> None:
    tasks: list[Task] = []
    decorators, spark = ModuleType("airflow.decorators"), ModuleType("spark_submit")
    decorators.dag = lambda **_: lambda function: function  # type: ignore[attr-defined]
    spark.SparkSubmitOperator = lambda **given: tasks.append(Task(**given)) or tasks[-1]  # type: ignore[attr-defined]
    place = "airflow.providers.apache.spark.operators.spark_submit"
    with mock.patch.dict(sys.modules, {"airflow.decorators": decorators, place: spark}):
        runpy.run_path(str(DAG))
    for task in tasks:
        job, *options = task.application_args
        command, context = COMMANDS[f"{PROGRAM} pipeline {job}"]
        command.make_context(context.info_name, options, parent=context.parent)
        assert Path(task.application).is_file()
    assert [task.task_id for task in tasks] == ["ingest", "usage", "replay", "recommend"]
    assert tasks[0].later == ["usage", "replay", "recommend"]
