# Examples of every command, below its path. Tests run them from top to bottom, in a folder that holds the examples.

## kafka-quotas
# See quotas at work, without a cluster.
kafka-quotas demo
# Limit a user, and see what that comes to for a client.
kafka-quotas alter --user alice --add-config producer_byte_rate=10MiB
kafka-quotas describe --effective --user alice --client app
# Find out whether quotas slow a client down.
kafka-quotas why --user alice --client app

## kafka-quotas alter
# Limit what one client-id of a user produces.
kafka-quotas alter --user alice --client app \
  --add-config producer_byte_rate=10MiB
# Give every user without a quota of its own a default, in a cluster.
kafka-quotas alter --user-default --add-config consumer_byte_rate=5MB \
  --bootstrap-server broker-1:9092
# Raise a limit for two hours.
kafka-quotas alter --user alice --add-config producer_byte_rate=50MiB \
  --for 2h --reason 'backfill'
# Remove a limit.
kafka-quotas alter --user alice --delete-config producer_byte_rate

## kafka-quotas describe
# Show all stored quotas.
kafka-quotas describe
# Show what a client really gets, and why.
kafka-quotas describe --effective --user alice --client app
# Hand the stored quotas of a cluster to a program.
kafka-quotas describe --bootstrap-server broker-1:9092 --output json

## kafka-quotas revert
# List the changes made by this tool.
kafka-quotas revert --list
# Show what undoing the last one of the store in use would do, then undo it.
kafka-quotas revert last
kafka-quotas revert last --yes
# Undo temporary changes that have expired, as a timer does.
kafka-quotas revert --due

## kafka-quotas export
# Write the stored quotas into a file for version control.
kafka-quotas export --out quotas.yaml
# Export those of a cluster.
kafka-quotas export --bootstrap-server broker-1:9092

# Write what Terraform manages; what it can't express is listed.
kafka-quotas export --format terraform --selector user --out quotas.tf

## kafka-quotas import
# Turn a script of kafka-configs commands into a file of quotas.
kafka-quotas import other-tools/quotas.sh
# Do it with manifests of Strimzi.
kafka-quotas import other-tools/kafka-users.yaml

## kafka-quotas validate
# Check files and folders without a store.
kafka-quotas validate quotas
# Check them with the values of an environment.
kafka-quotas validate quotas --values quota-values/production.yaml

## kafka-quotas diff
# Show what files would change, and for whom.
kafka-quotas diff quotas
# Compare what Strimzi declares with a store, in a comment for a pull request.
kafka-quotas diff other-tools/kafka-users.yaml --output markdown
# Keep the plan, so that exactly this is applied.
kafka-quotas diff quotas --out plan.json

## kafka-quotas apply
# Check everything, and write nothing.
kafka-quotas apply quotas --dry-run
# Carry out a plan that diff kept.
kafka-quotas apply plan.json
# Bring a cluster to what files declare.
kafka-quotas apply quotas --bootstrap-server broker-1:9092

## kafka-quotas watch
# Print the changes of one minute.
kafka-quotas watch --duration 1min --bootstrap-server broker-1:9092

## kafka-quotas migrate
# See what a migration from ZooKeeper would copy.
kafka-quotas migrate --from zk://zookeeper-1:2181 \
  --to kafka://broker-1:9092 --dry-run
# Copy the local store into another file.
kafka-quotas migrate --from local:quotas.db --to local:copy.db

## kafka-quotas context
# Name a cluster, and use it from now on.
kafka-quotas context set prod --bootstrap-server broker-1:9092 --use
kafka-quotas context list

## kafka-quotas context list
# List the named clusters.
kafka-quotas context list

## kafka-quotas context show
# Show which store counts, and where each setting came from.
kafka-quotas context show

## kafka-quotas context set
# Name a cluster that asks for a login.
kafka-quotas context set secure --bootstrap-server broker-1:9093 \
  --username admin --password-command 'printenv KAFKA_PASSWORD'
# Name the daemon in front of it as well.
kafka-quotas context set prod --control /run/kafka-quotas/control.sock

## kafka-quotas context use
# Use a cluster from now on.
kafka-quotas context use prod
# Use none any more.
kafka-quotas context use --none

## kafka-quotas context remove
# Forget a cluster.
kafka-quotas context remove secure

## kafka-quotas context test
# Test whether everything that contexts name answers.
kafka-quotas context test --all

## kafka-quotas kafka-configs
# Set a quota as Kafka's own program does.
kafka-quotas kafka-configs --bootstrap-server broker-1:9092 --alter \
  --entity-type users --entity-name alice \
  --add-config producer_byte_rate=1048576

## kafka-quotas tree
# Draw what wins and what is shadowed.
kafka-quotas tree
# Draw only what may apply to one client.
kafka-quotas tree --user alice --client app --key producer_byte_rate

## kafka-quotas doctor
# Check the stored quotas for problems.
kafka-quotas doctor
# Check those of a cluster, and the cluster as well.
kafka-quotas doctor --bootstrap-server broker-1:9092

# Check what files declare, before it is stored.
kafka-quotas doctor quotas

## kafka-quotas why
# Ask the daemon on this machine.
kafka-quotas why --user alice --client app
# Ask the brokers' own metrics.
kafka-quotas why --client app --bootstrap-server broker-1:9092 \
  --prometheus http://broker-1:7071/metrics

## kafka-quotas top
# Watch the daemon on this machine.
kafka-quotas top
# Print one moment for a program.
kafka-quotas top --once --sort throttle --output json

## kafka-quotas ui
# Look at your daemon and its quotas in a browser, at http://127.0.0.1:9480/.
kafka-quotas ui
# Look at a cluster and its brokers' own metrics, on another port.
kafka-quotas ui --listen 8080 --bootstrap-server broker-1:9092 \
  --prometheus http://broker-1:7071/metrics

## kafka-quotas exporter
# Serve a cluster's limits, and how close everybody is to them.
kafka-quotas exporter --bootstrap-server broker-1:9092 \
  --prometheus http://broker-1:7071/metrics
# Count what differs from files as well, for other machines to scrape.
kafka-quotas exporter quotas.yaml --listen 0.0.0.0:9481 \
  --bootstrap-server broker-1:9092

## kafka-quotas throttle
# Calculate the throttle time of a burst.
kafka-quotas throttle rate --quota 5MB/s --steady 5MB/s --burst 15MB

## kafka-quotas throttle simulate
# Replay recorded events through Kafka's rate.
kafka-quotas throttle simulate events-kip13.jsonl --quota 5MB/s --closed-loop

## kafka-quotas throttle rate
# Calculate the throttle time of a burst.
kafka-quotas throttle rate --quota 5MB/s --steady 5MB/s --burst 15MB
# Calculate that of a measured rate.
kafka-quotas throttle rate --quota 5MB/s --observed 6MB/s

## kafka-quotas throttle request
# Calculate the throttle time after a request of 100 ms.
kafka-quotas throttle request --quota 0.1% --stall 100ms

## kafka-quotas throttle mutation
# Calculate the wait after 560 partitions were created at once.
kafka-quotas throttle mutation --quota 5 --burst 560 \
  --controller-quota-window-num 100

## kafka-quotas throttle compare
# Compare the algorithms of KIP-599 by its own example.
kafka-quotas throttle compare

## kafka-quotas daemon
# Enforce the quotas of the local store before a broker.
kafka-quotas daemon run --upstream broker-1:9092 --listen 127.0.0.1:19092
# Show who is throttled.
kafka-quotas daemon status

## kafka-quotas daemon run
# Enforce the quotas of the local store before a broker.
kafka-quotas daemon run --upstream broker-1:9092 --listen 127.0.0.1:19092
# Enforce the cluster's own quotas, with metrics and a state file.
kafka-quotas daemon run --upstream broker-1:9092 --listen 0.0.0.0:19092 \
  --store kafka://broker-1:9092 --metrics-port 9404 \
  --state-file /var/lib/kafka-quotas/state.json
# Count what would be throttled, and throttle nobody.
kafka-quotas daemon run --upstream broker-1:9092 --mode shadow

## kafka-quotas daemon check
# Check a file of settings and all that it names, and show what is in force.
kafka-quotas daemon check --config daemon.toml
# The same with an option of daemon run that beats the file.
kafka-quotas daemon check --config daemon.toml --mode shadow

## kafka-quotas daemon decide
# Ask how long a client would wait, and charge nothing.
kafka-quotas daemon decide check --type produce --amount 1MB --user alice

## kafka-quotas daemon calibrate
# Measure what requests cost a broker.
kafka-quotas daemon calibrate --upstream broker-1:9092 \
  --cost-model costs.json

## kafka-quotas daemon unmute
# Let a client continue at once.
kafka-quotas daemon unmute --user alice --client app

## kafka-quotas daemon status
# Show who is throttled, and how the daemon fares.
kafka-quotas daemon status

## kafka-quotas daemon reload
# Have quotas and files read again.
kafka-quotas daemon reload

## kafka-quotas load-test
# Run a scenario on the embedded cluster.
kafka-quotas load-test run everyday
# Ask whether one client gets its quota from a cluster.
kafka-quotas load-test produce --bootstrap-server broker-1:9092 \
  --topic load --quota 1MB/s

## kafka-quotas load-test run
# Run a shipped scenario on the embedded cluster, and keep its report.
kafka-quotas load-test run isolation --out isolation
# Run your own on a cluster.
kafka-quotas load-test run scenario.yaml --bootstrap-server broker-1:9092

## kafka-quotas load-test produce
# Produce as fast as possible under a quota, for as long as judging takes.
kafka-quotas load-test produce --bootstrap-server broker-1:9092 \
  --topic load --entity /app --set-quota 1MB/s --yes

## kafka-quotas load-test consume
# Consume as fast as possible under a quota, for as long as judging takes.
kafka-quotas load-test consume --bootstrap-server broker-1:9092 \
  --topic load --entity /app --set-quota 1MB/s --yes

## kafka-quotas load-test requests
# Flood a cluster with requests for metadata, under a request quota.
kafka-quotas load-test requests --bootstrap-server broker-1:9092 \
  --api Metadata --set-quota 1 --yes

## kafka-quotas load-test mutate
# Create topics faster than the quota permits.
kafka-quotas load-test mutate --bootstrap-server broker-1:9092 \
  --kind create --set-quota 5 --yes

## kafka-quotas load-test connect
# Open connections as fast as possible.
kafka-quotas load-test connect --bootstrap-server broker-1:9092 \
  --duration 10s --yes

## kafka-quotas load-test list
# List the shipped scenarios.
kafka-quotas load-test list

## kafka-quotas load-test init
# Write a scenario that asks whether every client gets its quota.
kafka-quotas load-test init holds scenario.yaml

## kafka-quotas load-test validate
# Check a scenario without running it.
kafka-quotas load-test validate scenario.yaml

## kafka-quotas load-test report
# Draw the report of a kept run again.
kafka-quotas load-test report isolation

## kafka-quotas load-test compare
# Compare a run with an earlier one.
kafka-quotas load-test compare before after

## kafka-quotas load-test merge
# Join two shards to one run.
kafka-quotas load-test merge shard-1 shard-2 --out whole

## kafka-quotas load-test restore
# Show what killed runs left behind, then put it back.
kafka-quotas load-test restore --dry-run
kafka-quotas load-test restore

## kafka-quotas pipeline
# Turn request logs into recommended quotas.
kafka-quotas pipeline ingest \
  --source 'request-log/{broker_id}/*.gz' --timezone UTC --out traffic
kafka-quotas pipeline recommend traffic --min-recorded 30s --engine local

## kafka-quotas pipeline ingest
# Read request logs of brokers whose folders have their ids.
kafka-quotas pipeline ingest \
  --source 'request-log/{broker_id}/*.gz' --timezone UTC --out logs
# Add what a daemon recorded.
kafka-quotas pipeline ingest /var/lib/kafka-quotas/events --out logs

## kafka-quotas pipeline usage
# Show who used how much.
kafka-quotas pipeline usage traffic --limit 4

## kafka-quotas pipeline replay
# Show whom proposed quotas would have throttled.
kafka-quotas pipeline replay traffic --quotas request-log/quotas.yaml

## kafka-quotas pipeline recommend
# Write recommended quotas into a file for diff and apply.
kafka-quotas pipeline recommend traffic --min-recorded 30s \
  --file recommended.yaml

## kafka-quotas pipeline validate
# Compare replayed throttle times with the recorded ones.
kafka-quotas pipeline validate traffic \
  --quotas request-log/quotas.yaml --quota-window-num 3

## kafka-quotas pipeline report
# Write a page for everybody.
kafka-quotas pipeline report traffic --quotas request-log/quotas.yaml \
  --out report.html

## kafka-quotas pipeline stream
# Follow what a daemon writes to a topic.
kafka-quotas pipeline stream kafka://broker-1:9092/quota-events \
  --checkpoint checkpoint --out -

## kafka-quotas pipeline demo
# Show the pipeline on the traffic of a real broker.
kafka-quotas pipeline demo

## kafka-quotas examples
# See what there is, and copy all of it.
kafka-quotas examples list
kafka-quotas examples copy

## kafka-quotas examples list
# List the examples.
kafka-quotas examples list

## kafka-quotas examples copy
# Copy only the files of quotas.
kafka-quotas examples copy quotas --to my-quotas

## kafka-quotas help
# Show how to name a store.
kafka-quotas help stores
# Show the help of a command.
kafka-quotas help daemon run

## kafka-quotas completion
# Complete commands and names in this shell.
eval "$(kafka-quotas completion bash)"

## kafka-quotas demo
# See quotas at work, without a cluster.
kafka-quotas demo
