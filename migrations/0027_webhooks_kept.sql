-- Who looks for what is to be sent passes over webhooks that are deleted, of which there may be many.
CREATE INDEX webhooks_kept ON webhooks (id) WHERE status <> 'DELETED';
