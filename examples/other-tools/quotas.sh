#!/bin/sh
# Quotas as a script of Kafka's own tool.
set -eu

"$KAFKA_HOME/bin/kafka-configs.sh" --bootstrap-server "$BOOTSTRAP_SERVER" --alter \
  --entity-type users --entity-name web \
  --add-config 'producer_byte_rate=10485760,request_percentage=200'
"$KAFKA_HOME/bin/kafka-configs.sh" --bootstrap-server "$BOOTSTRAP_SERVER" --alter \
  --entity-type users --entity-default --add-config consumer_byte_rate=2097152
"$KAFKA_HOME/bin/kafka-configs.sh" --bootstrap-server "$BOOTSTRAP_SERVER" --alter \
  --entity-type topics --entity-name clicks --add-config retention.ms=86400000
