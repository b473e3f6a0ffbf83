"""The pipeline's commands as a program of their own: `python -m kafka_quotas.pipeline usage --data traffic`.

    spark-submit --master yarn PATH/kafka_quotas/pipeline/__main__.py usage --data s3a://lake/traffic --engine spark

The file is what `spark-submit` takes; `python -c "import kafka_quotas.pipeline as p; print(p.__path__[0])"` prints its
folder. The session is then that of the submitted application, with its master and its jars.
"""

import sys
from importlib.metadata import entry_points


def main() -> None:
    """Run `kafka-quotas pipeline` with the arguments of this program."""
    sys.argv = ["kafka-quotas", "pipeline", *sys.argv[1:]]
    # By its entry point, for this room imports none that is above it.
    (command,) = entry_points(group="console_scripts", name="kafka-quotas")
    sys.exit(command.load()())


if __name__ == "__main__":
    main()
