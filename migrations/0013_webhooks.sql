-- Webhooks as a resource: which networks inside an operator lets one reach, and the keys that signed before a rotation.

-- CIDRs separated by commas; empty reaches the internet only. It takes the place of allow_private, which stays written.
ALTER TABLE webhooks ADD COLUMN allowed_networks TEXT NOT NULL DEFAULT '';
UPDATE webhooks SET allowed_networks = '0.0.0.0/0,::/0' WHERE allow_private;

-- Sign beside the present ones until then; secrets, separated by spaces as in signing_key.
ALTER TABLE webhooks ADD COLUMN previous_signing_key TEXT NOT NULL DEFAULT '';
ALTER TABLE webhooks ADD COLUMN previous_key_expires_us BIGINT NOT NULL DEFAULT 0;

-- Statuses whose events an organization does not want to be sent. They have their events and ids all the same.
CREATE TABLE muted_statuses (
    organization_id TEXT NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (organization_id, status)
);
