"""The files for containers, Kubernetes and systemd: valid, with options and ports that the daemon has."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from kafka_quotas.cli.daemon.command import app
from kafka_quotas.cli.framework.service_variables import variable
from kafka_quotas.cli.framework.store_choice import STORE_VARIABLE
from kafka_quotas.enforcement.config.policy_file import read_policy_file

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "examples" / "systemd"
MANIFESTS = list(yaml.safe_load_all((ROOT / "examples/kubernetes/kafka-quotas.yaml").read_text(encoding="utf-8")))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONS = {
    name
    for parameter in typer.main.get_command(app).commands["run"].params  # type: ignore[attr-defined]
    for name in parameter.opts
}


def instructions(word: str) -> list[str]:
    """What follows this word in the Dockerfile, in order."""
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (document for document in MANIFESTS if document["kind"] == kind)
    return found


@pytest.mark.parametrize("document", MANIFESTS, ids=lambda document: str(document["kind"]))
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
    (base,) = instructions("ARG")
    assert PROJECT["requires-python"] == f">={base.rpartition(':')[2].removesuffix('-slim')}"
    copied = {word for rest in instructions("COPY") if not rest.startswith("--from") for word in rest.split()[:-1]}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    assert copied == sent


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
