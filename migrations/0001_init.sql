-- The whole schema, by subject: the chain, accounts, the books, delivery. Accounts come before the books, which refer to them.
--
-- One text for both engines. {{blob}} is BYTEA on PostgreSQL and BLOB on SQLite; no other type differs. {{by_bytes}} makes
-- PostgreSQL compare a text by its bytes, as SQLite always does: its own collation may order words as a language does.
-- Numbers are BIGINT, times (_us) microseconds since 1970, amounts 32 bytes big-endian in base units, with their decimal text
-- beside them (_text).

-- The chain --------------------------------------------------------------------------------------------------------------

-- Where each chain's watcher stands. watch_seq is the number of the newest watched address: whoever adds one takes this row's
-- lock, and whoever connects a block compares it, so no block is matched against an outdated list.
CREATE TABLE cursors (
    chain TEXT NOT NULL PRIMARY KEY,
    -- The last connected block; NULL, with looked_number, before the first.
    number BIGINT,
    hash {{blob}},
    -- The newest of them that is final; NULL before the first.
    final_number BIGINT,
    final_hash {{blob}},
    -- Through which number the connected blocks were checked a second time, where hashes cover no parent: they count as final
    -- only then.
    looked_number BIGINT,
    watch_seq BIGINT NOT NULL
);

-- The newest connected blocks: the locator of fork points. Disconnecting clears canonical and deletes nothing.
CREATE TABLE blocks (
    chain TEXT NOT NULL REFERENCES cursors (chain),
    hash {{blob}} NOT NULL,
    number BIGINT NOT NULL,
    parent_hash {{blob}} NOT NULL,
    time_us BIGINT NOT NULL,
    proof TEXT NOT NULL,
    canonical BOOLEAN NOT NULL,
    -- A block of a network that is not traced counts as traced.
    traced BOOLEAN NOT NULL DEFAULT true,
    -- What stands behind the trace on record: 'two_endpoints', 'one_endpoint', or 'roots' where nothing had to be traced. NULL
    -- where no trace was read.
    traced_by TEXT,
    PRIMARY KEY (chain, hash)
);
CREATE UNIQUE INDEX blocks_canonical ON blocks (chain, number) WHERE canonical;
CREATE INDEX blocks_number ON blocks (chain, number);
CREATE INDEX blocks_untraced ON blocks (chain, number) WHERE canonical AND NOT traced;
CREATE INDEX blocks_traced_by ON blocks (chain, traced_by, number) WHERE canonical AND traced_by IS NOT NULL;

-- Blocks whose last trace failed, until they are traced.
CREATE TABLE trace_failures (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    -- How often it failed while other blocks could be traced: then it is the block's own failure.
    tries BIGINT NOT NULL,
    tried_us BIGINT NOT NULL,
    -- When it is tried again.
    next_us BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash)
);

-- What the lane of the traces last reported of itself; no row where a network is not traced.
CREATE TABLE trace_status (
    chain TEXT NOT NULL PRIMARY KEY,
    -- Why it does not get on; empty when all is well.
    reason TEXT NOT NULL,
    -- When every connected block was last traced; 0 when that never was.
    caught_up_us BIGINT NOT NULL
);

-- How native movements were seen, and from which block on: what a changed setting leaves unread follows from it.
CREATE TABLE native_settings (
    chain TEXT NOT NULL,
    -- The first block that was followed with this setting.
    from_number BIGINT NOT NULL,
    -- 'top_level', 'trace' or 'log_transfer'.
    source TEXT NOT NULL,
    eip7708_from BIGINT,
    PRIMARY KEY (chain, from_number)
);

-- What a chain itself reports of each listed asset, shown to people.
CREATE TABLE asset_facts (
    chain TEXT NOT NULL,
    asset {{blob}} NOT NULL,
    symbol TEXT NOT NULL,
    -- When it was last reported; NULL, as is all that is reported, before the first time.
    reported_us BIGINT,
    -- The program that keeps it: by name where it keeps tokens, else by address, and then nothing more is reported.
    program TEXT,
    decimals BIGINT,
    freeze_authority TEXT,
    permanent_delegate TEXT,
    -- Hundredths of a percent, and the most base units.
    fee_basis_points BIGINT,
    fee_maximum TEXT,
    -- Names as JSON arrays: all extensions, and those by which others may move, stop, hide or shrink a holding.
    extensions TEXT NOT NULL,
    risks TEXT NOT NULL,
    -- How it differs from what is listed; empty when it does not.
    differs TEXT NOT NULL,
    -- Why the last check brought nothing; empty when it did.
    reason TEXT NOT NULL,
    -- Nothing of a held asset is CONFIRMED: the chain reports it otherwise than the configuration lists it, or was not asked
    -- yet.
    is_held BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (chain, asset)
);

-- What a watcher last reported of itself, for other processes: status, health.
CREATE TABLE chain_status (
    chain TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    proof TEXT NOT NULL,
    latest BIGINT,
    finalized BIGINT,
    -- When the cursor last stood at the newest block.
    caught_up_us BIGINT NOT NULL,
    heartbeat_us BIGINT NOT NULL,
    -- Conditions that are no failure yet: finality stalls, too few endpoints agree. A JSON array of texts.
    alarms TEXT NOT NULL DEFAULT '[]',
    -- When the newest final block last advanced.
    finalized_us BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE endpoint_status (
    chain TEXT NOT NULL,
    id TEXT NOT NULL,
    ordinal BIGINT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    latest BIGINT,
    -- How long its requests take, as `status` shows it: a moving average; NULL before the first response.
    latency_ms BIGINT,
    PRIMARY KEY (chain, id)
);

-- Reading past ranges again, on demand: where each stands, so that it can go on there.
CREATE TABLE backfills (
    chain TEXT NOT NULL,
    -- Both inclusive, as they were asked for.
    from_number BIGINT NOT NULL,
    to_number BIGINT NOT NULL,
    -- 'receipts' or 'logs'; with '/traces' behind it in the row of the traces.
    proof TEXT NOT NULL,
    -- The addresses that were asked for, as text; empty for all.
    scope TEXT NOT NULL,
    -- What stands for them in the key: they themselves, or the SHA-256 of many. An entry of PostgreSQL's index takes 2,704
    -- bytes, some sixty addresses.
    scope_key TEXT NOT NULL,
    -- What was looked for: the newest watched address and the listed assets. With others it begins again.
    basis TEXT NOT NULL,
    -- The next block to read; to_number + 1 when all is done.
    next_number BIGINT NOT NULL,
    found BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    -- 'roots', 'bloom', 'two_endpoints' or 'one_endpoint': the weakest that stands behind what was read; NULL before anything
    -- was, and of traces.
    level TEXT,
    PRIMARY KEY (chain, from_number, to_number, proof, scope_key)
);

-- What a person must look at.
CREATE TABLE incidents (
    id TEXT NOT NULL PRIMARY KEY,
    chain TEXT NOT NULL,
    kind TEXT NOT NULL,
    what TEXT NOT NULL,
    -- Of a reorg: the fork point.
    block_number BIGINT,
    opened_us BIGINT NOT NULL,
    -- When it was last met again.
    seen_us BIGINT NOT NULL,
    resolved_us BIGINT,
    resolution TEXT NOT NULL,
    -- The deposit that it is about; empty where it is about none. One of a kind is open for each.
    deposit_id TEXT NOT NULL DEFAULT '',
    -- The address and the asset that it is about; NULL where it is about none. One of a kind is open for each pair.
    address {{blob}},
    asset {{blob}}
);
CREATE INDEX incidents_deposit ON incidents (deposit_id, kind);
CREATE UNIQUE INDEX incidents_open ON incidents (chain, kind, deposit_id) WHERE resolved_us IS NULL AND address IS NULL;
CREATE UNIQUE INDEX incidents_open_of ON incidents (chain, kind, address, asset) WHERE resolved_us IS NULL;

-- What an operator decided for a chain's watcher: halt, resume, or what counts in place of a rule. Each has an entry in audit.
CREATE TABLE overrides (
    chain TEXT NOT NULL,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    reason TEXT NOT NULL,
    until_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    PRIMARY KEY (chain, kind)
);

-- Accounts ---------------------------------------------------------------------------------------------------------------

CREATE TABLE identities (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    label TEXT NOT NULL DEFAULT '',
    -- Empty when there is none.
    sub_status TEXT NOT NULL DEFAULT '',
    fiat_operations_enabled BOOLEAN NOT NULL DEFAULT false
);
-- Accounts that name no identity belong to this one.
INSERT INTO identities (id, organization_id, type, status, created_us) VALUES ('default', 'default', 'BUSINESS', 'ACTIVE', 0);

-- Insert only: each change of an identity's status, who decided it and why.
CREATE TABLE identity_changes (
    identity_id TEXT NOT NULL REFERENCES identities (id),
    -- 0 for the first.
    position BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    previous_status TEXT NOT NULL,
    previous_sub_status TEXT NOT NULL,
    status TEXT NOT NULL,
    sub_status TEXT NOT NULL,
    PRIMARY KEY (identity_id, position)
);

CREATE TABLE accounts (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    identity_id TEXT NOT NULL REFERENCES identities (id),
    type TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    -- The request that opened it; empty for one that an operator registered.
    request_id TEXT NOT NULL DEFAULT ''
);
-- Pages go by time and by the bytes of ids. All accounts of one import have one time: without the ids each page would sort
-- all of them.
CREATE INDEX accounts_newest ON accounts (organization_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX accounts_identity ON accounts (identity_id, created_us DESC, id{{by_bytes}} DESC);

CREATE TABLE watched_addresses (
    chain TEXT NOT NULL REFERENCES cursors (chain),
    address {{blob}} NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    seq BIGINT NOT NULL,
    -- The first block that is matched against it.
    from_number BIGINT NOT NULL,
    PRIMARY KEY (chain, address),
    UNIQUE (chain, seq)
);
-- After a reorg, addresses that were to be watched from a block above the fork point are watched from the one behind it.
CREATE INDEX watched_addresses_from ON watched_addresses (chain, from_number);
CREATE INDEX watched_addresses_account ON watched_addresses (account_id, chain, address);

-- Requests that a client may send again. Never forgotten: one that comes again after years still makes nothing new.
CREATE TABLE requests (
    organization_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    -- Of all that it asked for.
    digest {{blob}} NOT NULL,
    -- What it made.
    object_id TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    PRIMARY KEY (organization_id, request_id)
);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    name TEXT NOT NULL,
    secret_hash {{blob}} NOT NULL,
    created_us BIGINT NOT NULL,
    -- What it may do.
    scopes TEXT NOT NULL DEFAULT 'read',
    revoked_us BIGINT,
    last_used_us BIGINT,
    -- What it was made for: the prefix that its owner holds is not hashed.
    environment TEXT NOT NULL DEFAULT ''
);

-- The public keys that sign for an API key. One row, even an expired one, makes signing compulsory for ever.
CREATE TABLE public_keys (
    key_id TEXT NOT NULL REFERENCES api_keys (id),
    -- SubjectPublicKeyInfo (RFC 5280), which names the algorithm too.
    spki {{blob}} NOT NULL,
    created_us BIGINT NOT NULL,
    -- Until when it signs; NULL is for ever.
    valid_until_us BIGINT,
    PRIMARY KEY (key_id, spki)
);

-- The nonces of signed requests that change something, as hashes, until nobody could use them again.
CREATE TABLE request_nonces (
    nonce {{blob}} NOT NULL PRIMARY KEY,
    expires_us BIGINT NOT NULL
);
CREATE INDEX request_nonces_expired ON request_nonces (expires_us);

-- The books --------------------------------------------------------------------------------------------------------------

CREATE TABLE deposits (
    id TEXT NOT NULL PRIMARY KEY,
    leg_hash {{blob}} NOT NULL UNIQUE,
    organization_id TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    source_account_id TEXT,
    chain TEXT NOT NULL,
    tx_id {{blob}} NOT NULL,
    tx_life {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    -- The rule that named the sender: 'reported' where the leg itself does, as on EVM.
    sender_rule TEXT NOT NULL DEFAULT 'reported',
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    nth BIGINT NOT NULL,
    symbol TEXT NOT NULL,
    decimals BIGINT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'CONFIRMED', 'FAILED')),
    created_us BIGINT NOT NULL,
    confirmed_us BIGINT,
    -- It came from another address of the same account whose key is held here: for the books alone, and no deposit of a client.
    is_self_transfer BOOLEAN NOT NULL DEFAULT FALSE,
    -- Since when its transaction is in no block although its height is final.
    missing_since_us BIGINT,
    -- The final block at which it was last looked for.
    missing_number BIGINT,
    CHECK ((status = 'CONFIRMED') = (confirmed_us IS NOT NULL))
);
-- The status stands in it too: without it SQLite's planner prefers an index over every deposit of the chain.
CREATE INDEX deposits_pending ON deposits (chain, status) WHERE status = 'PENDING';
CREATE INDEX deposits_tx ON deposits (tx_id);
-- What is not available of an account is looked for by account.
CREATE INDEX deposits_pending_account ON deposits (account_id, status) WHERE status = 'PENDING';
-- Pages go by time and by the bytes of ids.
CREATE INDEX deposits_account ON deposits (organization_id, account_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX deposits_newest ON deposits (organization_id, created_us DESC, id{{by_bytes}} DESC);
-- Lists of one account's deposits on one chain, or of one asset: without it they walk over all that the account has, however
-- few are wanted. Without the organization, which an account has one of: SQLite would take deposits_account in its place. With
-- the asset, since several tokens may have one symbol, one after the other.
CREATE INDEX deposits_kind ON deposits (account_id, chain, symbol, asset, created_us DESC, id{{by_bytes}} DESC);

-- Every block that a deposit was ever seen in; which of them count follows from blocks.canonical.
CREATE TABLE inclusions (
    deposit_id TEXT NOT NULL REFERENCES deposits (id),
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    -- What showed the leg in this block: 'roots' or 'traces'.
    lane TEXT NOT NULL DEFAULT 'roots',
    -- The deposit's: what came to an address in some blocks is found by it.
    recipient {{blob}} NOT NULL,
    -- What balances allow to have been paid to the deposit's recipient inside of the block's transactions; NULL where they
    -- cannot tell, or were not asked.
    allowed {{blob}},
    -- Who corroborates what a trace shows of the leg in this very block: 'two_engines', 'balances' or 'person'. It is kept with
    -- the sighting because nodes forget the state of old blocks. NULL while nobody does; the columns below are NULL with it.
    witness TEXT,
    -- Whether the leg is in the block; where it is not, it fails when the block is final.
    witness_shows BOOLEAN,
    -- Who paid it, and what moved to its recipient inside of its transaction, and inside of all transactions of the block.
    witness_sender {{blob}},
    paid_in_tx {{blob}},
    paid_in_tx_text TEXT,
    paid_in_block {{blob}},
    paid_in_block_text TEXT,
    PRIMARY KEY (deposit_id, block_hash)
);
CREATE INDEX inclusions_block ON inclusions (chain, block_hash);
CREATE INDEX inclusions_recipient ON inclusions (chain, recipient, block_number);

-- Deposits that a trace showed and that no witness has confirmed yet.
CREATE TABLE unwitnessed (
    deposit_id TEXT NOT NULL PRIMARY KEY REFERENCES deposits (id),
    chain TEXT NOT NULL,
    tries BIGINT NOT NULL,
    -- When it is tried again.
    next_us BIGINT NOT NULL,
    reason TEXT NOT NULL,
    -- The block whose witness was sought last (NULL where the deposit is in no block of ours), and whether it was final then. In
    -- another block, and once it is final, the tries begin anew.
    block_hash {{blob}},
    is_final BOOLEAN NOT NULL DEFAULT true,
    -- Whether a person decided that the deposit, which is in no block of ours, was not paid.
    given_up BOOLEAN NOT NULL DEFAULT false
);

-- Legs out of watched addresses. Which of them count follows from blocks.canonical.
CREATE TABLE debits (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    lane TEXT NOT NULL,
    -- The content of the leg, as deposits have it: the same leg of a block stands here once, however often it is read.
    leg_hash {{blob}} NOT NULL,
    tx_id {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, leg_hash)
);
CREATE INDEX debits_sender ON debits (chain, sender, block_number);

-- What watched addresses paid for transactions, in base units of the native currency.
CREATE TABLE fees (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    tx_id {{blob}} NOT NULL,
    payer {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    -- What else the transaction took of who paid, where blocks report balances; less than 0 where it brought some.
    outlay TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, tx_id)
);
CREATE INDEX fees_payer ON fees (chain, payer, block_number);

-- What came to watched owners and is no deposit, each with its reason. Which of it counts follows from blocks.canonical.
CREATE TABLE unattributed (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    -- The content of the leg, as deposits have it, and why it is no deposit: it stands here once for each block, however often
    -- that is read.
    leg_hash {{blob}} NOT NULL,
    reason TEXT NOT NULL,
    tx_id {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    sender {{blob}} NOT NULL,
    sender_rule TEXT NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    PRIMARY KEY (chain, block_hash, leg_hash, reason)
);
CREATE INDEX unattributed_recipient ON unattributed (chain, recipient, block_number);
CREATE INDEX unattributed_newest ON unattributed (chain, block_number DESC);
-- Whose tokens stand in other accounts than the one that is read.
CREATE INDEX unattributed_stray ON unattributed (chain, recipient, asset) WHERE reason = 'ineligible_token_account';

-- What watched addresses held at a final block.
CREATE TABLE balances (
    chain TEXT NOT NULL,
    address {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    -- The final block that it is true of. On Solana it has no hash.
    block_number BIGINT NOT NULL,
    block_hash {{blob}},
    -- 'two_endpoints' or 'one_endpoint': who reported it.
    proof TEXT NOT NULL,
    read_us BIGINT NOT NULL,
    -- The newest reading that was compared: what came and went is counted from behind its block.
    base_number BIGINT NOT NULL,
    base_amount {{blob}} NOT NULL,
    PRIMARY KEY (chain, address, asset)
);
-- Those that were read longest ago.
CREATE INDEX balances_read ON balances (chain, read_us);
-- Those of blocks that are disconnected.
CREATE INDEX balances_block ON balances (chain, block_number);

-- An address whose holdings are to be read once this block is final; 0 for whichever is.
CREATE TABLE balances_due (
    chain TEXT NOT NULL,
    address {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    queued_us BIGINT NOT NULL,
    -- 'moved': something moved in that block, or may have up to it without being seen. The others have the number 0: 'added',
    -- 'listed' (an asset), 'taken_back' (the block that was read was not final after all).
    reason TEXT NOT NULL DEFAULT 'moved',
    -- Since when it was asked for and endpoints did not report the same, of which assets, and when it is asked for again.
    unreported_us BIGINT,
    unreported_assets TEXT NOT NULL DEFAULT '',
    again_us BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (chain, address, block_number)
);
CREATE INDEX balances_due_next ON balances_due (chain, block_number, queued_us);
CREATE INDEX balances_due_reason ON balances_due (chain, reason, queued_us);
CREATE INDEX balances_due_unreported ON balances_due (chain, unreported_us) WHERE unreported_us IS NOT NULL;

-- Since when each asset is followed.
CREATE TABLE balance_assets (
    chain TEXT NOT NULL,
    asset {{blob}} NOT NULL,
    -- The first block that was searched for it: what moved of it before was not seen.
    followed_from BIGINT NOT NULL,
    -- Since when nobody reports how much of it anybody holds; NULL while somebody does.
    unreported_us BIGINT,
    -- From which block on all that moves of it is seen; NULL where it is not, and then nothing is compared.
    explained_from BIGINT,
    -- The settings by which that is so, as text.
    explained_by TEXT NOT NULL,
    PRIMARY KEY (chain, asset)
);

-- Two readings between which more or less moved than was on record. It names no transaction, and is no deposit.
CREATE TABLE unexplained (
    chain TEXT NOT NULL,
    address {{blob}} NOT NULL,
    asset {{blob}} NOT NULL,
    -- What was held after the older block, and after the newer one, in base units.
    from_number BIGINT NOT NULL,
    had {{blob}} NOT NULL,
    had_text TEXT NOT NULL,
    to_number BIGINT NOT NULL,
    has {{blob}} NOT NULL,
    has_text TEXT NOT NULL,
    found_us BIGINT NOT NULL,
    -- The incident that the two readings are part of; NULL where they are part of none.
    incident_id TEXT,
    PRIMARY KEY (chain, to_number, address, asset)
);
CREATE INDEX unexplained_incident ON unexplained (incident_id);
-- A deposit may become CONFIRMED after the balance behind its block was compared.
CREATE INDEX unexplained_address ON unexplained (chain, address, asset, to_number);

-- Delivery ---------------------------------------------------------------------------------------------------------------

-- Insert only, but for feed_seq. The columns id, aggregatetype, aggregateid, type and payload are those of Debezium's outbox
-- router. aggregatetype is 'deposit', 'transfer', 'identity' or 'webhook'; aggregateid is the id of the deposit, the transfer or
-- the identity, and of a webhook's test event its own.
CREATE TABLE events (
    id TEXT NOT NULL PRIMARY KEY,
    aggregatetype TEXT NOT NULL,
    aggregateid TEXT NOT NULL,
    type TEXT NOT NULL,
    payload TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    -- Empty for an event of an identity, which concerns all its accounts, and for a webhook's.
    account_id TEXT NOT NULL,
    -- Of a transfer's event what it announces: 'INCLUDED' and 'DISPLACED' are no statuses.
    status TEXT NOT NULL,
    nth_entry BIGINT NOT NULL,
    -- Position among the events of its aggregate, from 0.
    position BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    -- Its number in the feed, one sequence without gaps. NULL until the holder of the feed's lease numbers it; never changed
    -- afterwards.
    feed_seq BIGINT,
    UNIQUE (aggregateid, position)
);
CREATE INDEX events_account ON events (account_id, created_us, id);
CREATE INDEX events_created ON events (created_us, id);
CREATE UNIQUE INDEX events_feed ON events (organization_id, feed_seq) WHERE feed_seq IS NOT NULL;
CREATE INDEX events_feed_account ON events (organization_id, account_id, feed_seq) WHERE feed_seq IS NOT NULL;
CREATE INDEX events_feed_type ON events (organization_id, type, feed_seq) WHERE feed_seq IS NOT NULL;
CREATE INDEX events_feed_account_type ON events (organization_id, account_id, type, feed_seq) WHERE feed_seq IS NOT NULL;
-- What is still to be numbered. Events that only show that a webhook works are not part of the feed.
CREATE INDEX events_unnumbered ON events (organization_id, created_us, aggregateid, position)
    WHERE feed_seq IS NULL AND aggregatetype <> 'webhook';
-- An account's part of the feed has the events of its identity too.
CREATE INDEX events_feed_identity ON events (organization_id, aggregateid, feed_seq)
    WHERE aggregatetype = 'identity' AND feed_seq IS NOT NULL;

-- Where events go: webhooks, and a stream of NATS JetStream as one more endpoint, with deliveries, order and breaker as any
-- other.
CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    url TEXT NOT NULL,
    label TEXT NOT NULL,
    -- ACTIVE and FAILING (failing: one event is attempted at a time, now and then) are ours; PAUSED, GONE (it answered 410) and
    -- DELETED wait for a person. What is pending stays in every one of them.
    status TEXT NOT NULL,
    signing_key_id TEXT NOT NULL,
    signing_key TEXT NOT NULL,
    signing_key_created_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    -- Which networks inside an operator lets it reach: CIDRs separated by commas; empty reaches the internet only.
    allowed_networks TEXT NOT NULL DEFAULT '',
    -- Sign beside the present ones until then; secrets, separated by spaces as in signing_key.
    previous_signing_key TEXT NOT NULL DEFAULT '',
    previous_key_expires_us BIGINT NOT NULL DEFAULT 0,
    -- ACTIVE: failures in a row. FAILING: those that opened it, and each attempt since then.
    failures BIGINT NOT NULL DEFAULT 0,
    in_flight_max BIGINT NOT NULL DEFAULT 8,
    status_since_us BIGINT NOT NULL DEFAULT 0,
    -- FAILING: nothing is attempted before. ACTIVE: nothing of what was attempted for seven days.
    probe_us BIGINT NOT NULL DEFAULT 0,
    -- What failed is being made due at once, some at a time.
    releasing BOOLEAN NOT NULL DEFAULT FALSE,
    -- ACTIVE: what its failures in a row weigh; at 100 it is FAILING. The first failure of an event weighs most.
    strain BIGINT NOT NULL DEFAULT 0,
    -- When a probe last began. An event that was never attempted is not kept waiting for the next one in the schedule.
    probed_us BIGINT NOT NULL DEFAULT 0,
    -- WEBHOOK, or NATS: that one has the id nats, and nats: with the name of its stream in place of a URL.
    kind TEXT NOT NULL DEFAULT 'WEBHOOK'
);
-- Who looks for what is to be sent passes over webhooks that are deleted, of which there may be many.
CREATE INDEX webhooks_kept ON webhooks (id) WHERE status <> 'DELETED';

-- Statuses whose events an organization does not want to be sent. They have their events and ids all the same. With the events'
-- type, because a deposit's CONFIRMED and a transfer's are one name.
CREATE TABLE muted_statuses (
    organization_id TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (organization_id, type, status)
);

CREATE TABLE deliveries (
    event_id TEXT NOT NULL REFERENCES events (id),
    webhook_id TEXT NOT NULL REFERENCES webhooks (id),
    aggregateid TEXT NOT NULL,
    position BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('PENDING', 'DELIVERED')),
    -- How many attempts were begun: the fencing token of a claim.
    attempt BIGINT NOT NULL,
    -- When it is due; of a LEASED one, when the lease ends; of a WAITING one, when it is checked although no earlier event has
    -- called it.
    next_us BIGINT NOT NULL,
    -- A PENDING delivery stands in one of these: FIRST (not failed yet), AGAIN (failed), LEASED (an attempt may be under way),
    -- WAITING (for an earlier event of its deposit), HELD (failed for seven days).
    queue TEXT NOT NULL DEFAULT 'FIRST',
    -- How many attempts have failed since it was written, replayed or released.
    failures BIGINT NOT NULL DEFAULT 0,
    -- The number of the claim that leased it.
    owner BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (event_id, webhook_id)
);
CREATE INDEX deliveries_order ON deliveries (webhook_id, aggregateid, position);
CREATE INDEX deliveries_queue ON deliveries (webhook_id, queue, next_us, event_id) WHERE state = 'PENDING';
CREATE INDEX deliveries_owner ON deliveries (owner) WHERE queue = 'LEASED';

CREATE TABLE attempts (
    event_id TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    started_us BIGINT NOT NULL,
    duration_us BIGINT NOT NULL,
    -- The HTTP status, when there was an answer.
    status BIGINT,
    error TEXT NOT NULL,
    response_head TEXT NOT NULL,
    PRIMARY KEY (event_id, webhook_id, attempt)
);

-- What the processes that publish to NATS last reported of their connection, for `status` and `health`. The report of one that
-- is up stands while it is repeated.
CREATE TABLE sink_status (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('up', 'away', 'refused')),
    reason TEXT NOT NULL,
    since_us BIGINT NOT NULL,
    heartbeat_us BIGINT NOT NULL
);

-- Work that one process at a time does. Each taking has another epoch, which fences off whoever had it before.
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    expires_us BIGINT NOT NULL
);

-- Insert only: who decided what, and why.
CREATE TABLE audit (
    id TEXT NOT NULL PRIMARY KEY,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    chain TEXT NOT NULL,
    what TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX audit_newest ON audit (at_us DESC, id DESC);
