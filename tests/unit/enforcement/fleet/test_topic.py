"""The topic's thread keeps nobody waiting, whatever the broker does."""

from tests.support.processes.awaiting import await_true

from kafka_quotas.enforcement.config.address import parse_topic
from kafka_quotas.enforcement.fleet.topic import FleetTopic


def test_a_topic_out_of_reach_keeps_nobody_waiting_and_says_why() -> None:
    came: list[bytes] = []
    topic = FleetTopic(parse_topic("kafka://127.0.0.1:1/fleet"), deliver=lambda report, _: came.append(report))
    topic.start()
    for _ in range(10_000):
        topic.publish(b"report")
    await_true(lambda: topic.trouble is not None, "the trouble is known")
    topic.close()
    assert not came


def test_a_property_that_is_none_is_reported() -> None:
    target = parse_topic("kafka://127.0.0.1:1/fleet")
    topic = FleetTopic(
        type(target)(bootstrap=target.bootstrap, topic=target.topic, properties={"no.such": "property"}),
        deliver=lambda *_: None,
    )
    topic.start()
    await_true(lambda: topic.trouble is not None, "the trouble is known")
    topic.close()
    assert topic.trouble is not None
    assert "no.such" in topic.trouble
