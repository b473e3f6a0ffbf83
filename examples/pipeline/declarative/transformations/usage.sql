CREATE MATERIALIZED VIEW usage_by_hour
COMMENT 'What each client used of each quota type in each hour: bytes, and bytes/s in the busiest second.'
AS SELECT cluster, broker_id, quota_type, user, client_id, hour,
  sum(events) AS requests, sum(total_bytes) AS bytes, max(peak_bytes) AS peak, sum(total_throttle_ms) AS throttle_ms
FROM events GROUP BY cluster, broker_id, quota_type, user, client_id, hour;

CREATE MATERIALIZED VIEW profile
COMMENT 'The bytes of a usual and of the busiest hour of each client, and its busiest second.'
AS SELECT cluster, broker_id, quota_type, user, client_id,
  count(*) AS hours, percentile(bytes, 0.5) AS usual_bytes, max(bytes) AS most_bytes, max(peak) AS peak
FROM usage_by_hour GROUP BY cluster, broker_id, quota_type, user, client_id;

CREATE MATERIALIZED VIEW report
COMMENT 'The ten clients that used most of each quota at each broker.'
AS SELECT * EXCEPT (place) FROM (
  SELECT *, row_number() OVER (PARTITION BY cluster, broker_id, quota_type ORDER BY peak DESC) AS place FROM profile
) WHERE place <= 10;
