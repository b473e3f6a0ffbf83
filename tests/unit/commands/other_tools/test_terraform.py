"""Terraform files."""

import time

import pytest
from tests.support.stores.other_tools import read

from kafka_quotas.commands.other_tools import terraform
from kafka_quotas.commands.other_tools.formats import Tool, format_of, tool_text
from kafka_quotas.core.errors import UsageError
from kafka_quotas.core.formats.nodes import DocumentError
from kafka_quotas.core.model.entity import Entity

MODULE = """\
terraform {
  required_providers { kafka = { source = "Mongey/kafka" } }
}
provider "kafka" { bootstrap_servers = [var.bootstrap] }
resource "kafka_topic" "clicks" {
  name   = "clicks-${var.environment}"
  config = { "a" = <<-EOT
    of any form
  EOT
  }
}
# Limit a client.
resource "kafka_quota" "mobile" {
  entity_name = "mobile-app-v1" // a comment
  entity_type = "client-id"
  config = {
    "consumer_byte_rate" = "5000000" # 5 MB/s
    producer_byte_rate : 2500000
    "request_percentage" = 200.5
    controller_mutation_rate = null
  }
  lifecycle { prevent_destroy = true }
}
resource "kafka_quota" "default_user" {
  entity_type = "user"
  config      = { "consumer_byte_rate" = "1048576", "producer_byte_rate" = "1048576" }
}
resource kafka_quota address {
  provider    = kafka.production
  entity_type = "ip"
  entity_name = "10.0.0.1"
  config      = { "connection_creation_rate" = 5 }
}
resource "kafka_quota_composite" "iam" {
  entity {
    type = "user"
  }
  entity {
    type = "client-id"
    name = "my \\"iam\\" $${x} %%{y} \\u00e9\\n"
  }
  config = { "producer_byte_rate" = "4194304" }
}
resource "aiven_kafka_quota" "example_quota" {
  project            = data.aiven_project.foo.project
  service_name       = aiven_kafka.example_kafka.service_name
  user               = "default"
  client_id          = "example_client"
  consumer_byte_rate = 1000
  request_percentage = 50
}
resource "confluent_kafka_client_quota" "example" {
  display_name = "test-quota"
  throughput {
    ingress_byte_rate = "100"
  }
}
"""


def test_quotas_of_the_known_providers_are_read() -> None:
    rows, problems, left_out = read(Tool.TERRAFORM, MODULE)
    assert problems == []
    assert rows == {
        "client-id mobile-app-v1": {
            "consumer_byte_rate": 5e6,
            "producer_byte_rate": 2.5e6,
            "request_percentage": 200.5,
            "controller_mutation_rate": None,
        },
        "default user": {"consumer_byte_rate": 1048576.0, "producer_byte_rate": 1048576.0},
        "ip 10.0.0.1": {"connection_creation_rate": 5.0},
        str(Entity.of(user=None, client_id='my "iam" ${x} %{y} é\n')): {"producer_byte_rate": 4194304.0},
        "default user, client-id example_client": {"consumer_byte_rate": 1000.0, "request_percentage": 50.0},
    }
    line = MODULE[: MODULE.index('resource "confluent')].count("\n") + 1
    known = "kafka_quota, kafka_quota_composite, aiven_kafka_quota"
    assert left_out == [f"file:{line}: confluent_kafka_client_quota, which is not one of {known}"]


QUOTA = 'resource "kafka_quota" "a" {\n  entity_type = "user"\n  entity_name = "a"\n  '
CONFIG = QUOTA + 'config = {\n    "producer_byte_rate" = '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONFIG + "var.rate\n}\n}", "file:5: only Terraform knows the value of 'var.rate'"),
        (CONFIG + "local.rates[0]\n}\n}", "file:5: only Terraform knows the value of 'local.rates[0]'"),
        (CONFIG + '"${var.rate}"\n}\n}', "file:5: only Terraform knows the value of '\"${var.rate}\"'"),
        (CONFIG + "10 * 1024\n}\n}", "file:5: only Terraform knows the value of '10 * 1024'"),
        (CONFIG + "tonumber(5)\n}\n}", "file:5: only Terraform knows the value of 'tonumber(5)'"),
        (CONFIG + "(5)\n}\n}", "file:5: only Terraform knows the value of '(5)'"),
        (CONFIG + "var.x ? 1 : 2\n}\n}", "file:5: only Terraform knows the value of 'var.x ? 1 : 2'"),
        (CONFIG + "[1]\n}\n}", "file:5: only Terraform knows the value of '[1]'"),
        (CONFIG + "<<E\n5\nE\n}\n}", "file:5: only Terraform knows the value of '<<E 5 E'"),
        (CONFIG + '"10MB"\n}\n}', "file:5: producer_byte_rate: not a number: '10MB'"),
        (CONFIG + "true\n}\n}", "file:5: producer_byte_rate: not a number: True"),
        (CONFIG + "0\n}\n}", "file:1: producer_byte_rate must be"),
        (CONFIG + '"\\$1"\n}\n}', "file:5: only Terraform knows the value of"),
        (CONFIG + '"\\UFFFFFFFF"\n}\n}', "file:5: only Terraform knows the value of"),
        (QUOTA + "config = merge(local.a, local.b)\n}", "file:4: only Terraform knows the value of 'merge(local.a, "),
        (QUOTA + "config = { for k, v in local.a : k => v }\n}", "file:4: only Terraform knows the value of '{ for k"),
        (QUOTA + "config = { (var.key) = 1 }\n}", "file:4: only Terraform knows the value of '(var.key)'"),
        (QUOTA + "count = 2\n}", "file:4: only Terraform knows what count makes"),
        (QUOTA + "for_each = local.users\n}", "file:4: only Terraform knows what for_each makes"),
        (QUOTA + 'dynamic "entity" {\n}\n}', "file:4: only Terraform knows what dynamic makes"),
        (QUOTA + "rate = 5\n}", "file:1: kafka_quota: unknown argument 'rate'"),
        (QUOTA + 'entity_name = "b"\n}', "file:4: 'entity_name' appears twice"),
        (CONFIG + '1\n    "producer_byte_rate" = 2\n}\n}', "file:6: 'producer_byte_rate' appears twice"),
        (QUOTA + "a {" * 5_000 + "}" * 5_001, ""),
        (QUOTA.replace('"user"', '"group"') + "}", "file:1: kafka_quota: the type of the entity is group"),
        (QUOTA.replace('"user"', "5") + "}", "file:1: kafka_quota: entity_type is 5.0"),
        (
            QUOTA.replace('= "a"', '= "a-${each.key}"') + "}",
            "file:3: only Terraform knows the value of '\"a-${each.key}\"'",
        ),
        (
            'resource "kafka_quota_composite" "a" {\n entity {\n type = "user"\n }\n}',
            "one entity of the type user and one",
        ),
        (CONFIG + "1\n}\n}\n" + CONFIG + "1\n}\n}\n", "file:8: user a appears twice, also at file:1"),
        (QUOTA, "file:4: not Terraform's syntax"),
        (QUOTA + "config = {", "not Terraform's syntax"),
        ("\n" + QUOTA + '"', "not Terraform's syntax"),
    ],
)
def test_what_only_terraform_knows_is_refused_with_its_line(text: str, message: str) -> None:
    try:
        _, problems, _ = read(Tool.TERRAFORM, text)
    except DocumentError as error:
        problems = [error.message]
    assert message in problems[0]
    assert len(problems[0]) < 200


def test_a_figure_that_is_none_comes_with_the_way_out() -> None:
    _, (problem,) = format_of(Tool.TERRAFORM).read(CONFIG + '"10MB"\n}\n}', "main.tf")
    assert problem.hint == "write it out, or export what Terraform has set: kafka-quotas export --bootstrap-server ..."


def test_a_file_without_quotas_needs_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, needed_by: str) -> None:
        raise UsageError(f"{needed_by} python-hcl2")

    monkeypatch.setattr(terraform, "require_extra", missing)
    assert read(Tool.TERRAFORM, 'variable "kafka_quota" {}\n') == ({}, [], [])
    with pytest.raises(UsageError, match="Terraform files need python-hcl2"):
        read(Tool.TERRAFORM, MODULE)


@pytest.mark.parametrize("opening", ["[", "(", "{a=", "a(", '"${', "!", "-", "a ? ", "<<A\n"])
def test_a_hostile_file_ends_soon(opening: str) -> None:
    begin_s = time.process_time()
    try:
        _, problems, _ = read(Tool.TERRAFORM, f"{CONFIG}{opening * 5_000}")
    except DocumentError as error:
        problems = [error.message]
    assert time.process_time() - begin_s < 5
    assert len(problems[0]) < 200


@pytest.mark.parametrize("pair", ["[]", "()"])
def test_a_deep_value_is_refused(pair: str) -> None:
    deep = f"{pair[0] * 5_000}1{pair[1] * 5_000}"
    (problem,) = read(Tool.TERRAFORM, f"{CONFIG}{deep}\n}}\n}}")[1]
    assert problem.startswith("file:5: only Terraform knows the value of")
    assert len(problem) < 200


def test_labels_of_written_resources_differ() -> None:
    content = {Entity.of(user=name): {"producer_byte_rate": 1.0} for name in ("a.b", "a-b", "a", "é")}
    text = tool_text(content, Tool.TERRAFORM)
    labels = [line.split('"')[3] for line in text.splitlines() if line.startswith("resource")]
    assert labels == ["user_a_b", "user_a_b_2", "user_a", "user"]
