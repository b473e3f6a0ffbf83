"""Data of topics over their thresholds, cut out of Produce requests by a session."""

from collections.abc import Iterator, Mapping

import pytest
from tests.support.brokers.topic_broker import METADATA, PRODUCE, Client, TopicBroker
from tests.support.frames.enforcement import START_MS, Pair, request
from tests.support.frames.numbered_batch import batch

from kafka_quotas.core.errors import ProtocolError
from kafka_quotas.core.model.entity import Entity
from kafka_quotas.core.model.quota_key import ThresholdSettings
from kafka_quotas.enforcement.config.client_policy import Mode
from kafka_quotas.enforcement.config.rules import EnforcementRules, ThresholdError
from kafka_quotas.enforcement.filters.topic_cache import SLICE, TopicCache
from kafka_quotas.wire.codec.skip import _FINDS_NOTHING
from kafka_quotas.wire.proxying.topics import KnownTopic

POLICY_VIOLATION, OUT_OF_ORDER, QUOTA_EXCEEDED, TOO_LARGE = 44, 45, 89, 10
TICK_MS = 5000
EVERY_VERSION = range(14)


class Producer(Client):
    """A client that produces to a broker whose total is 1000 bytes/s, 100 of them for `small`."""

    def __init__(
        self,
        broker: TopicBroker | None = None,
        *,
        totals: Mapping[str | None, float] | None = None,
        error: ThresholdError = ThresholdError.POLICY_VIOLATION,
        terms: Mode = Mode.KAFKA,
    ) -> None:
        pair = Pair(rules=EnforcementRules(mode=terms, threshold_error=error), has_topics=True)
        self.notices, self.counters, self.topics = pair.notices, pair.counters, pair.topics
        self.topics.thresholds.apply_file(
            ThresholdSettings(totals={None: 1000.0} if totals is None else totals, topics={"small": 100.0})
        )
        super().__init__(pair, broker or TopicBroker(topics={"small": 2, "large": 2, "other": 1}))

    def fill(self, version: int = 9) -> None:
        """Let the broker take in 2000 bytes/s, of which `small` has 1000, `large` 998 and `other` 2."""
        result = self.produce(version, ("small", 0, bytes(5000)), ("large", 0, bytes(4990)), ("other", 0, bytes(10)))
        assert result is not None
        assert {code for _, _, code in result} == {0}
        self.pair.advance(TICK_MS)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_data_of_topics_over_their_thresholds_is_rejected_and_all_else_taken_in_order(version: int) -> None:
    who = Producer()
    who.fill(version)
    before = len(who.broker.taken)
    result = who.produce(version, ("small", 0, b"a" * 70), ("other", 0, b"b" * 70), ("small", 1, b"c" * 70))
    assert result == [("small", 0, 44), ("small", 1, 44), ("other", 0, 0)]
    assert who.broker.taken[before:] == [("other", 0, b"b" * 70)]
    assert (who.counters.threshold_rejected_bytes, who.counters.threshold_rejected_batches) == (140, 2)


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_request_of_which_nothing_is_left_is_answered_here(version: int) -> None:
    who = Producer()
    who.fill(version)
    before = len(who.broker.asked)
    assert who.produce(version, ("small", 1, b"a" * 70), ("small", 0, b"a" * 70)) == [
        ("small", 1, 44),
        ("small", 0, 44),
    ]
    assert len(who.broker.asked) == before


def test_nothing_is_rejected_while_the_broker_is_under_its_total_or_the_topic_under_its_own() -> None:
    who = Producer(totals={None: 3000.0})
    who.fill()
    assert who.produce(9, ("small", 0, b"a")) == [("small", 0, 0)], "2000 of 3000 in all"
    who = Producer()
    who.fill()
    assert who.produce(9, ("other", 0, b"a")) == [("other", 0, 0)], "its share is 450, and it takes in 2"
    assert who.produce(9, ("large", 0, b"a")) == [("large", 0, POLICY_VIOLATION)], "it takes in 998 of 450"


def test_many_topics_are_learnt_in_slices_while_requests_pass() -> None:
    count = 2 * SLICE + 1
    who = Producer(TopicBroker(topics={f"t{number}": 1 for number in range(count)}))
    thresholds = who.topics.thresholds.broker(1)
    known = []
    for _ in range(4):
        assert who.produce(9, ("t0", 0, b"a")) == [("t0", 0, 0)]
        known.append(len(who.topics._cache.led_by(1)))
        who.pair.advance(TICK_MS)
    assert known == [SLICE, 2 * SLICE, count, count]
    assert thresholds.topics.threshold("t1") == (1000.0 - 0.0) / count, "each has a share of the total"
    assert who.broker.asked.count((METADATA, 4)) == 1


def test_the_end_of_a_broken_list_of_topics_costs_no_connection() -> None:
    cache, good = TopicCache(), KnownTopic(0, "t", None, 1, frozenset({1}), 0, 0)

    def topics() -> Iterator[KnownTopic]:
        for number in range(SLICE):
            yield good._replace(name=f"t{number}")
        raise ProtocolError("it ends too early")

    cache.learn_in_slices(topics())
    version = cache.version
    cache.learn_more()
    cache.learn_more()
    assert len(cache.led_by(1)) == SLICE
    assert cache.version == version + 1


def test_rates_fall_once_data_is_rejected_and_then_it_is_taken_again() -> None:
    who = Producer()
    who.fill()
    results = []
    for _ in range(60):
        results.append((who.produce(9, ("small", 0, b"a" * 70)) or [])[0][2])
        who.pair.advance(TICK_MS)
    taken_again = results.index(0)
    assert set(results[:taken_again]) == {POLICY_VIOLATION}
    # 2000 * (11/12)^n falls below the total of 1000 after about 9 ticks of 5 s.
    assert 8 <= taken_again <= 10


def test_topics_share_what_the_stated_thresholds_leave_and_a_new_topic_takes_part() -> None:
    who = Producer()
    who.fill()
    rates = who.topics.thresholds.brokers[1].rates(who.pair.now_ms)
    assert {topic: threshold for topic, (_, threshold) in rates.items()} == {
        "": 1000.0,
        "small": 100.0,
        "large": 450.0,
        "other": 450.0,
    }
    who.broker.topics["new"] = 1
    who.pair.advance(60_000)
    who.produce(9, ("other", 0, b"a"))
    assert who.topics.thresholds.brokers[1].topics.threshold("new") == 300.0


def test_topics_that_other_brokers_lead_do_not_share() -> None:
    who = Producer(TopicBroker(topics={"small": 1, "large": 1, "other": 1, "elsewhere": 1}))
    who.broker.leader = 2
    assert who.ask(METADATA, 9, topics=None, allow_auto_topic_creation=True) is not None
    who.fill()
    rates = who.topics.thresholds.brokers[1].rates(who.pair.now_ms)
    assert set(rates) == {"", "small", "large", "other"}, "those that data came for"


def test_topics_are_asked_for_once_a_minute_and_ids_when_they_are_unknown() -> None:
    who = Producer()
    who.fill(13)
    assert who.broker.asked == [(METADATA, 4), (METADATA, 12), (PRODUCE, 13)]
    who.produce(13, ("other", 0, b"a"))
    assert who.broker.asked[3:] == [(PRODUCE, 13)]
    who.pair.advance(60_000)
    who.produce(13, ("other", 0, b"a"))
    assert who.broker.asked[4:] == [(METADATA, 4), (PRODUCE, 13)]


MADE_UP = [f"made-up-{number}" for number in range(1000)]


@pytest.mark.parametrize(("version", "acks"), [(9, 1), (9, 0), (13, 1), (13, 0)])
def test_names_that_a_client_made_up_take_nothing_from_anybody(version: int, acks: int) -> None:
    who = Producer(TopicBroker(topics={"small": 2, "large": 2, "other": 1}, refuses=dict.fromkeys(MADE_UP, 3)))
    who.broker.refuses[""] = 100  # an id that is no topic's
    who.fill(version)
    thresholds = who.topics.thresholds.brokers[1]
    before = thresholds.rates(who.pair.now_ms)
    assert before["other"] == (2.0, 450.0)
    for _ in range(2):
        who.produce(version, *((name, 0, b"") for name in MADE_UP), acks=acks)
        who.produce(version, *((name, 0, b"a" * 70) for name in MADE_UP), acks=acks)
    assert thresholds.rates(who.pair.now_ms) == before
    assert who.produce(version, ("other", 0, b"a")) == [("other", 0, 0)]
    assert len(who.topics._cache.led_by(1)) == 3


def test_a_broker_is_asked_about_the_topics_with_the_most_data_where_no_response_tells_of_them() -> None:
    who = Producer(TopicBroker(topics={"small": 2, "large": 2, "other": 1}, refuses=dict.fromkeys(MADE_UP, 3)))
    who.fill()
    who.broker.topics["new"] = 1
    who.broker.asked.clear()
    who.produce(9, *((name, 0, b"a") for name in MADE_UP), ("new", 0, b"a" * 5000), acks=0)
    assert who.broker.asked == [(METADATA, 4), (PRODUCE, 9)]
    who.pair.advance(TICK_MS)
    assert who.topics.thresholds.brokers[1].rates(who.pair.now_ms)["new"][0] == 1000.0


def test_reading_messages_leaves_nothing_behind() -> None:
    who = Producer()
    who.fill()
    known = len(_FINDS_NOTHING)
    for _ in range(5):
        who.produce(9, ("other", 0, b"a"))
        who.produce(13, ("other", 0, b"a"))
        assert who.ask(METADATA, 12, topics=None, allow_auto_topic_creation=True) is not None
        who.pair.advance(60_000)
    assert len(_FINDS_NOTHING) <= known + 10, "the layouts of these versions, which are kept"
    known = len(_FINDS_NOTHING)
    for _ in range(5):
        who.produce(9, ("other", 0, b"a"))
        who.pair.advance(60_000)
    assert len(_FINDS_NOTHING) == known


def test_topics_that_are_gone_or_made_again_leave_nothing_in_the_cache() -> None:
    cache = TopicCache()
    for number in range(100):
        topic_id = number.to_bytes(16, "big")
        cache.learn([KnownTopic(0, "t", topic_id, 1, frozenset({number % 3}), 0, 0)])
        assert cache.name_of(topic_id) == "t"
        assert [broker for broker in range(3) if "t" in cache.led_by(broker)] == [number % 3]
        cache.learn([KnownTopic(0, "t", None, 1, frozenset({1}), 0, 0)])
        assert cache.name_of(topic_id) == "t", "an older version tells no id"
        assert cache.name_of((number - 1).to_bytes(16, "big")) is None if number else True
    cache.forget("t")
    assert not cache.knows("t")
    assert not cache.led_by(1)
    assert cache.name_of((99).to_bytes(16, "big")) is None


def test_an_id_that_nobody_knows_is_left_to_the_broker() -> None:
    who = Producer()
    who.fill(13)
    assert who.produce(13, ("unknown", 0, b"a")) == [("unknown", 0, 0)]
    assert who.broker.taken[-1][:2] == ("", 0)


def test_rejected_data_is_said_with_topic_and_reason_and_not_for_every_batch() -> None:
    who = Producer()
    who.fill()
    for _ in range(100):
        who.produce(9, ("small", 0, b"a" * 10))
    (said,) = [notice for notice in who.notices if notice.event.startswith("data rejected")]
    assert said.fields["topic"] == "small"
    assert said.fields["reason"] == "topic small takes in 1000 bytes/s of its 100, and the broker 2000 of its 1000"
    who.pair.advance(TICK_MS)
    who.produce(9, ("small", 0, b"a" * 10))
    last = who.notices[-1].fields
    assert (last["batches"], last["bytes"]) == (100, 1000), "what came together since"


def test_without_acknowledgements_data_is_dropped_in_silence() -> None:
    who = Producer()
    who.fill()
    before = len(who.broker.taken)
    assert who.produce(9, ("small", 0, b"a" * 70), ("other", 0, b"b"), acks=0) is None
    assert who.produce(9, ("small", 0, b"a" * 70), acks=0) is None
    assert who.broker.taken[before:] == [("other", 0, b"b")]
    assert who.counters.threshold_rejected_bytes == 140


def test_data_that_the_broker_refuses_is_not_taken_in() -> None:
    who = Producer(TopicBroker(topics={"small": 1}, refuses={"small": TOO_LARGE}))
    who.broker.topics["small"] = 1
    for _ in range(3):
        assert who.produce(9, ("small", 0, bytes(100_000))) == [("small", 0, TOO_LARGE)]
    who.pair.advance(TICK_MS)
    assert who.topics.thresholds.brokers[1].rates(who.pair.now_ms)[""] == (0.0, 1000.0)
    assert who.counters.oversized_bytes == 300_000


def test_in_shadow_mode_everything_is_taken_and_what_would_be_rejected_is_counted() -> None:
    who = Producer(terms=Mode.SHADOW)
    who.fill()
    assert who.produce(9, ("small", 0, b"a" * 70)) == [("small", 0, 0)]
    assert (who.counters.threshold_rejected_bytes, who.counters.threshold_shadowed_bytes) == (0, 70)


def test_without_a_total_everything_streams() -> None:
    who = Producer(totals={})
    assert who.produce(9, ("small", 0, b"a")) == [("small", 0, 0)]
    assert who.broker.asked == [(PRODUCE, 9)]


def test_the_store_has_its_say_over_the_file_and_what_is_too_much_is_not_used() -> None:
    who = Producer()
    who.topics.apply_store(
        [
            (Entity.of(topic="small"), {"bytes.in.per.sec.threshold": 900.0}),
            (Entity.of(broker="1"), {"total.bytes.in.per.sec.threshold": 1900.0}),
        ]
    )
    assert who.topics.thresholds.broker(1).rates(START_MS)[""] == (0.0, 1900.0)
    assert who.topics.thresholds.broker(2).rates(START_MS)[""] == (0.0, 1000.0)
    who.topics.apply_store([(Entity.of(topic="small"), {"bytes.in.per.sec.threshold": 1001.0})])
    assert "sum to 1001" in str(who.notices[-1])
    assert who.topics.thresholds.broker(1).rates(START_MS)[""] == (0.0, 1900.0)


def test_the_broker_behind_the_bootstrap_address_keeps_its_rates_when_it_is_known() -> None:
    topics = Producer().topics
    thresholds = topics.thresholds.broker(None)
    thresholds.topics.record("small", 5000, START_MS)
    topics.thresholds.name_bootstrap(7)
    assert topics.thresholds.broker(7) is thresholds
    assert topics.thresholds.broker(7).rates(START_MS + TICK_MS)["small"][0] == 1000.0


# Producers that number their batches.


def test_batches_behind_a_rejected_one_are_out_of_order_until_it_comes_again() -> None:
    who = Producer(error=ThresholdError.THROTTLING_QUOTA_EXCEEDED)
    who.fill()
    assert who.produce(9, ("small", 0, batch(10))) == [("small", 0, QUOTA_EXCEEDED)]
    assert who.produce(9, ("small", 1, batch(10))) == [("small", 1, QUOTA_EXCEEDED)]
    for _ in range(12):
        who.pair.advance(TICK_MS)
        who.produce(9, ("other", 0, b"a"))
    assert who.produce(9, ("small", 0, batch(20))) == [("small", 0, OUT_OF_ORDER)], "under its threshold by now"
    assert who.produce(9, ("small", 0, batch(20, producer_id=8))) == [("small", 0, 0)], "another producer"
    assert who.produce(9, ("small", 0, batch(10))) == [("small", 0, 0)]
    assert who.produce(9, ("small", 0, batch(20))) == [("small", 0, 0)]
    assert who.produce(9, ("small", 1, batch(0, epoch=1))) == [("small", 1, 0)], "it began anew"
    assert [records[57:] for _, _, records in who.broker.taken[-4:]] == [batch(0)[57:]] * 4


def produce_of(topics: int, partitions: int) -> bytes:
    """A Produce of version 3 with empty records for so many partitions of so many topics."""
    part = bytes(4) + b"\xff\xff\xff\xff"
    topic = b"\x00\x01t" + partitions.to_bytes(4, "big") + part * partitions
    head = b"\xff\xff" + b"\x00\x01" + (1000).to_bytes(4, "big")
    return request(PRODUCE, 3, 1, head + topics.to_bytes(4, "big") + topic * topics)


@pytest.mark.parametrize(("topics", "partitions"), [(10_001, 0), (1, 10_001), (100, 101), (1, 1_000_000)])
def test_a_produce_of_more_partitions_than_a_broker_has_is_refused_before_it_is_read(
    topics: int, partitions: int
) -> None:
    pair = Producer().pair
    with pytest.raises(ProtocolError, match="where"):
        pair.send(produce_of(topics, partitions))
    assert PRODUCE not in {frame[5] for frame in (pair.upstream[:6],) if frame}


def test_a_long_request_for_metadata_is_no_reason_to_learn() -> None:
    pair = Producer().pair
    named = request(METADATA, 1, 1, (1_500_000).to_bytes(4, "big") + bytes(3_000_000))
    assert pair.send(named[:1000]) == named[:1000], "it streams"
