-- 'roots', 'bloom', 'two_endpoints' or 'one_endpoint': the weakest that stands behind what was read; NULL before anything was, of traces, and
-- in rows from before.
ALTER TABLE backfills ADD COLUMN level TEXT;
