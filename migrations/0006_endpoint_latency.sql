-- How long an endpoint's requests take, as `status` shows it: a moving average; NULL before the first answer.

ALTER TABLE endpoint_status ADD COLUMN latency_ms BIGINT;
