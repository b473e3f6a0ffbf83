"""The files for containers, Kubernetes and systemd: valid, with options and ports that the daemon has."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyspark
import pytest
import yaml
from generators.documentation.documents import commands

from kafka_quotas.cli.framework.commands import variable
from kafka_quotas.cli.framework.store_choice import STORE_VARIABLE
from kafka_quotas.enforcement.config.client_policy import read_policy_file

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "examples" / "systemd"
KUBERNETES = ROOT / "examples" / "kubernetes"
MANIFESTS = list(yaml.safe_load_all((KUBERNETES / "kafka-quotas.yaml").read_text(encoding="utf-8")))
PIPELINE = {
    document["kind"]: document
    for document in yaml.safe_load_all((KUBERNETES / "pipeline.yaml").read_text(encoding="utf-8"))
}
EXECUTOR = yaml.safe_load(PIPELINE["ConfigMap"]["data"]["executor.yaml"])
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMMANDS = {context.command_path: command for command, context in commands()}
OPTIONS = {name for parameter in COMMANDS["kafka-quotas daemon run"].params for name in parameter.opts}


def instructions(word: str) -> list[str]:
    """What follows this word in the Dockerfile, in order."""
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (document for document in MANIFESTS if document["kind"] == kind)
    return found


@pytest.mark.parametrize(
    "document", [*MANIFESTS, *PIPELINE.values(), EXECUTOR], ids=lambda document: str(document["kind"])
)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_kubernetes_takes_every_manifest(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_refuses_a_misspelt_field() -> None:
    broken = json.loads(json.dumps(manifest("Service")))
    broken["spec"]["selectr"] = broken["spec"].pop("selector")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.34", strict=True)


def test_the_manifests_fit_each_other_and_the_daemon() -> None:
    pod = manifest("Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    given = dict(argument.split("=", 1) for argument in container["args"])
    assert given.keys() <= OPTIONS
    assert pod["metadata"]["labels"].items() >= manifest("Service")["spec"]["selector"].items()
    open_ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert all(open_ports[port["targetPort"]] == port["port"] for port in manifest("Service")["spec"]["ports"])
    first = int(given["--listen"].rpartition(":")[2])
    brokers = given["--upstream"].split(",")
    wanted = {first, *(first + 1 + node_id for node_id in range(len(brokers)))}
    assert {port["port"] for port in manifest("Service")["spec"]["ports"]} == wanted
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe", "startupProbe")} == {
        "metrics"
    }
    assert instructions("EXPOSE") == [f"{open_ports['bootstrap']} {open_ports['metrics']}"]
    assert container["image"].endswith(f":{PROJECT['version']}")
    assert int(given["--drain-timeout"]) < pod["spec"]["terminationGracePeriodSeconds"]
    user = pod["spec"]["securityContext"]
    assert instructions("USER") == [f"{user['runAsUser']}:{user['runAsGroup']}"]
    assert manifest("ConfigMap")["data"].keys() == {given["--policy"].rpartition("/")[2]}


def test_the_policy_of_the_config_map_is_one(tmp_path: Path) -> None:
    (text,) = manifest("ConfigMap")["data"].values()
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    assert read_policy_file(path).entities


def test_the_image_holds_its_state_in_its_volume_and_checks_its_own_port() -> None:
    entry = json.loads(instructions("ENTRYPOINT")[0])
    assert entry[0] in PROJECT["scripts"]
    given = dict(each.split("=", 1) for each in instructions("ENV")[0].split())
    of_options = {name for name in given if name.startswith("KAFKA_QUOTAS_DAEMON_")}
    assert of_options < {variable("DAEMON", option) for option in OPTIONS}
    port = re.findall(r"http://127\.0\.0\.1:(\d+)/healthz", DOCKERFILE)
    assert [f"0.0.0.0:{number}" for number in port] == [given[variable("DAEMON", "--metrics-port")]]
    (volume,) = instructions("VOLUME")
    for name in (STORE_VARIABLE, variable("DAEMON", "--control"), variable("DAEMON", "--state-file")):
        assert given[name].removeprefix("local:").startswith(f"{volume}/")
    base = next(argument for argument in instructions("ARG") if argument.startswith("BASE="))
    assert PROJECT["requires-python"] == f">={base.rpartition(':')[2].removesuffix('-slim')}"
    copied = {word for rest in instructions("COPY") if not rest.startswith("--from") for word in rest.split()[:-1]}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    assert copied == sent


def test_the_job_of_the_pipeline_fits_its_image_and_its_command() -> None:
    job = PIPELINE["Job"]["spec"]["template"]["spec"]
    (driver,) = job["containers"]
    options = {name for parameter in COMMANDS[" ".join(driver["command"])].params for name in parameter.opts}
    given = [argument.split("=", 1) for argument in driver["args"]]
    assert {name for name, _ in given} <= options
    conf = dict(value.split("=", 1) for name, value in given if name == "--spark-conf")
    (mount,) = driver["volumeMounts"]
    template = conf["spark.kubernetes.executor.podTemplateFile"]
    assert template in {f"{mount['mountPath']}/{name}" for name in PIPELINE["ConfigMap"]["data"]}
    assert conf["spark.kubernetes.container.image"] == driver["image"]
    assert driver["image"].endswith(f":{PROJECT['version']}")
    assert re.findall(r"\$\((\w+)\)", " ".join(driver["args"])) == [variable["name"] for variable in driver["env"]]
    user = f"{job['securityContext']['runAsUser']}:{job['securityContext']['runAsGroup']}"
    assert instructions("USER") == [user]
    assert EXECUTOR["spec"]["securityContext"] == job["securityContext"]
    (executor,) = EXECUTOR["spec"]["containers"]
    assert executor["envFrom"] == driver["envFrom"]
    (built,) = re.findall(r"EXTRAS=(\S+)", DOCKERFILE.split("FROM", 1)[0])
    assert set(built.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_the_executor_starts_what_spark_has_for_kubernetes(tmp_path: Path) -> None:
    """The pod's command runs with a `java` that shows its arguments, and an option of Java that has a space in it."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\ncat "${1#@}"; shift; printf \'%s\\n\' "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    wanted = re.findall(r"\$(SPARK_[A-Z_]+[A-Z])", EXECUTOR["spec"]["containers"][0]["command"][-1])
    environment = {name: name.lower() for name in wanted} | {"SPARK_JAVA_OPT_0": "-Da=b c", "SPARK_JAVA_OPT_1": "-Dd=1"}
    done = subprocess.run(
        [*EXECUTOR["spec"]["containers"][0]["command"], "executor"],
        env=environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    assert sorted(lines[:2]) == ['"-Da=b c"', '"-Dd=1"']
    name = next(line for line in lines if line.startswith("org.apache.spark"))
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    assert f"{name.replace('.', '/')}.class" in zipfile.ZipFile(jar).namelist()
    options = dict(zip(lines[lines.index(name) + 1 :: 2], lines[lines.index(name) + 2 :: 2], strict=True))
    assert options["--driver-url"] == "spark_driver_url"
    assert options.keys() == {
        *("--driver-url", "--executor-id", "--cores", "--app-id", "--hostname", "--resourceProfileId", "--podName")
    }


UNITS = sorted(path.name for path in SYSTEMD.iterdir() if path.suffix in (".service", ".timer"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (Debian's systemd) not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("kafka-quotas")
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        # systemd looks for commands in its own path only, where a virtual environment isn't.
        (tmp_path / name).write_text(re.sub(r"^(Exec\w+=)kafka-quotas ", rf"\1{command} ", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (Debian's systemd) not installed")
@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_systemd_finds_little_that_a_unit_could_do_without(name: str) -> None:
    """`systemd-analyze security` weighs what a service may do: 10 is everything, and below 2 is its `OK`."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=19", str(SYSTEMD / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_memory_has_a_limit_where_the_daemon_is_deployed() -> None:
    for name in UNITS:
        if name.endswith(".service"):
            assert re.search(r"^MemoryMax=\d+[MG]$", (SYSTEMD / name).read_text(encoding="utf-8"), re.MULTILINE), name
    for document in (manifest("Deployment")["spec"]["template"], PIPELINE["Job"]["spec"]["template"], EXECUTOR):
        for container in document["spec"]["containers"]:
            if container.get("resources"):
                assert container["resources"]["limits"]["memory"]
    assert manifest("Deployment")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]


def test_the_workflow_uses_actions_by_commit() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", workflow)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", each)] == []


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None, reason="systemd-sysusers (Debian's systemd) not installed"
)
def test_systemd_makes_the_user_and_the_folder_of_the_units(tmp_path: Path) -> None:
    for kind in ("sysusers", "tmpfiles"):
        folder = tmp_path / "etc" / f"{kind}.d"
        folder.mkdir(parents=True)
        shutil.copy(SYSTEMD / f"kafka-quotas.{kind}", folder / "kafka-quotas.conf")
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}"], check=True, capture_output=True, timeout=60)
    (line,) = (tmp_path / "etc/passwd").read_text().splitlines()
    for name in UNITS:
        if name.endswith(".service"):
            assert f"User={line.partition(':')[0]}\n" in (SYSTEMD / name).read_text(encoding="utf-8")
    rules = (SYSTEMD / "kafka-quotas.tmpfiles").read_text(encoding="utf-8")
    assert re.findall(r"^d (\S+) 0750 root kafka-quotas", rules, re.MULTILINE) == ["/etc/kafka-quotas"]


def test_the_daemons_unit_drains_before_systemd_loses_patience() -> None:
    text = (SYSTEMD / "kafka-quotas.service").read_text(encoding="utf-8").replace("\\\n", " ")
    command = re.findall(r"^ExecStart=(.*)", text, re.MULTILINE)[0]
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]+", command)) <= OPTIONS
    drain_s = int(re.findall(r"--drain-timeout (\d+)", command)[0])
    assert drain_s < int(re.findall(r"^TimeoutStopSec=(\d+)", text, re.MULTILINE)[0])
