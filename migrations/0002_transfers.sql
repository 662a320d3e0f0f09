-- Money out: the addresses that we hold keys of, and what accounts send from them. Types and times as in 0001.

-- Addresses whose keys the signer holds. An address is a function of the account alone, so a restored row is the same row.
CREATE TABLE wallets (
    -- 'evm' or 'solana': an EVM address is one wallet on every EVM chain.
    family TEXT NOT NULL,
    address {{blob}} NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    -- Empty for the address that pays; of a further deposit address the request that asked for it.
    tag TEXT NOT NULL,
    -- Where the signer derives its key, and from which of its seeds.
    path TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    -- Since when it signs nothing, because something left it that no signature of ours explains; NULL where it signs.
    quarantined_us BIGINT,
    PRIMARY KEY (family, address),
    UNIQUE (account_id, family, tag)
);
CREATE INDEX wallets_quarantined ON wallets (family, address) WHERE quarantined_us IS NOT NULL;

CREATE TABLE transfers (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts (id),
    identity_id TEXT NOT NULL REFERENCES identities (id),
    -- 'PAYMENT': a client asked for it. 'SWEEP': an operator brings an account's money together at the address that pays.
    kind TEXT NOT NULL CHECK (kind IN ('PAYMENT', 'SWEEP')),
    chain TEXT NOT NULL,
    asset {{blob}} NOT NULL,
    symbol TEXT NOT NULL,
    decimals BIGINT NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    -- The address that pays: it is fixed here, and never chosen by what it holds.
    source {{blob}} NOT NULL,
    -- The tag of that wallet: empty for the paying address of the account.
    source_tag TEXT NOT NULL,
    destination {{blob}} NOT NULL,
    -- The account that is paid, when the destination is one of ours.
    destination_account_id TEXT,
    -- 'accepted', 'carried', 'included', 'expiring', 'confirmed', 'failed' or 'dropped'; the status follows from it.
    state TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACCEPTED', 'SUBMITTED', 'CONFIRMED', 'FAILED', 'DROPPED')),
    -- Of a FAILED or DROPPED one.
    failure_code TEXT,
    -- Before that: why there is an obstacle.
    reason TEXT,
    tx_id {{blob}},
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    submitted_us BIGINT,
    confirmed_us BIGINT,
    -- Stands in each signature; only healing moves it.
    deadline_us BIGINT NOT NULL,
    -- Its payer's key has signed it here, as `intents` shows too, which lists would have to join. Once it was handed over, a store
    -- that is lost may have had it signed.
    is_signed BOOLEAN NOT NULL DEFAULT false,
    -- How the asset is sent, and the key that the chain takes once, as its blocks show it: both are fixed here.
    route TEXT NOT NULL,
    intent_key {{blob}} NOT NULL,
    -- When a person asked for its end: nothing is signed or sent for it from then on.
    cancelled_us BIGINT,
    -- What last kept it from being signed or carried: the code that it fails with once it is proved that nothing was paid.
    obstacle TEXT,
    -- Counts the changes: who changes the row says which version it read.
    version BIGINT NOT NULL,
    -- What its transactions cost who is charged, as the ledger has it; NULL until one is final.
    fee_amount {{blob}},
    fee_symbol TEXT,
    fee_decimals BIGINT,
    -- In millionths of a USD, and to whom; NULL until all of it is priced.
    fee_usd BIGINT,
    fee_charged_to TEXT,
    CHECK ((status = 'CONFIRMED') = (confirmed_us IS NOT NULL)),
    CHECK ((status IN ('FAILED', 'DROPPED')) = (failure_code IS NOT NULL))
);
-- Pages go by time and by the bytes of ids.
CREATE INDEX transfers_newest ON transfers (organization_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX transfers_account ON transfers (account_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX transfers_identity ON transfers (identity_id, created_us DESC, id{{by_bytes}} DESC);
CREATE INDEX transfers_status ON transfers (organization_id, status, created_us DESC, id{{by_bytes}} DESC) WHERE status <> 'CONFIRMED';
-- What is reserved of an account, and what the sender still has to do.
CREATE INDEX transfers_open ON transfers (account_id, chain, status) WHERE status IN ('ACCEPTED', 'SUBMITTED');

-- What the sender of a chain has in hand, and whose mark it is.
CREATE INDEX transfers_unfinished ON transfers (chain, created_us) WHERE status IN ('ACCEPTED', 'SUBMITTED');
-- Whose account of a token was paid for.
CREATE INDEX transfers_destination ON transfers (destination, chain, created_us);
CREATE INDEX transfers_intent ON transfers (source, intent_key, chain);

-- Insert only: each state that a transfer entered, and by which evidence.
CREATE TABLE transfer_changes (
    transfer_id TEXT NOT NULL REFERENCES transfers (id),
    -- 0 for the first, which is that it was accepted.
    position BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    state TEXT NOT NULL,
    evidence TEXT NOT NULL,
    -- The block that showed it, and its time, as the chain says it.
    block_number BIGINT,
    block_hash {{blob}},
    block_time_us BIGINT,
    -- The endpoints that reported the state of the key in that block, as `landfall status` names them, with a blank between; NULL where our own
    -- blocks showed it.
    reported_by TEXT,
    PRIMARY KEY (transfer_id, position)
);

-- What a payer's key signs, from before it signs. A transfer has a second one only when a later deadline heals it.
CREATE TABLE intents (
    transfer_id TEXT NOT NULL REFERENCES transfers (id),
    -- Seconds since 1970, as it stands in the signature.
    deadline_secs BIGINT NOT NULL,
    -- NULL until it is signed; then with the signer's name, and the number of its entry in that signer's journal.
    signature {{blob}},
    signer_id TEXT,
    signer_seq BIGINT,
    recorded_us BIGINT NOT NULL,
    signed_us BIGINT,
    PRIMARY KEY (transfer_id, deadline_secs)
);

-- What a payer's key signs so that a transfer is never paid, from before it signs.
CREATE TABLE cancellations (
    transfer_id TEXT NOT NULL PRIMARY KEY REFERENCES transfers (id),
    -- NULL until it is signed; then with the signer's name, and the number of its entry in that signer's journal.
    signature {{blob}},
    signer_id TEXT,
    signer_seq BIGINT,
    recorded_us BIGINT NOT NULL,
    signed_us BIGINT
);

-- What a wallet's key signs so that a delegate acts for it, or none does any more, from before it signs; of each of its
-- nonces one.
CREATE TABLE authorizations (
    chain TEXT NOT NULL,
    wallet {{blob}} NOT NULL,
    nonce BIGINT NOT NULL,
    -- The code that acts for it; zeros take it away.
    implementation {{blob}} NOT NULL,
    -- Of what takes it away: the transfer that bears the cost, and the one whose attempts carry it with others.
    transfer_id TEXT REFERENCES transfers (id),
    carried_by TEXT REFERENCES transfers (id),
    -- NULL until it is signed; then with the signer's name, and the number of its entry in that signer's journal.
    signature {{blob}},
    signer_id TEXT,
    signer_seq BIGINT,
    recorded_us BIGINT NOT NULL,
    signed_us BIGINT,
    PRIMARY KEY (chain, wallet, nonce)
);
CREATE INDEX authorizations_carried_by ON authorizations (carried_by) WHERE carried_by IS NOT NULL;

-- Wallets for which a delegate may act though nothing needs it. A row leaves when a final block shows that none does.
CREATE TABLE clearings (
    chain TEXT NOT NULL,
    wallet {{blob}} NOT NULL,
    -- Its transfer that ended last: it bears what this costs.
    transfer_id TEXT NOT NULL REFERENCES transfers (id),
    since_us BIGINT NOT NULL,
    -- The nonce of what takes the delegate away; NULL until it is made.
    nonce BIGINT,
    PRIMARY KEY (chain, wallet)
);

-- Addresses that pay for transactions. One is asked for by its number, and gets its address from the signer.
CREATE TABLE sponsors (
    chain TEXT NOT NULL,
    number BIGINT NOT NULL,
    -- NULL until a process with a signer has derived it.
    address {{blob}},
    -- It is the treasury of its chain: it carries nothing, and refills the others.
    is_treasury BOOLEAN NOT NULL,
    -- 'active', 'paused' by a person, or 'quarantined': somebody else uses its key.
    state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'quarantined')),
    -- How many transactions it had sent when it was taken up here: the first nonce that is ours.
    first_nonce BIGINT,
    created_us BIGINT NOT NULL,
    -- The nonce behind the highest one that only the signer's journal knows. NULL where it knows no more than the attempts.
    journal_nonce BIGINT,
    -- Its number on the chain's watch list: what it pays is seen in the blocks behind. NULL without an address.
    watch_seq BIGINT,
    -- The first block that is matched against it. NULL without an address.
    seen_from BIGINT,
    -- Since when nodes have said that it owns too little; NULL while they take what it pays for.
    poor_since_us BIGINT,
    PRIMARY KEY (chain, number)
);
CREATE UNIQUE INDEX sponsors_address ON sponsors (chain, address);
CREATE UNIQUE INDEX sponsors_treasury ON sponsors (chain) WHERE is_treasury;
CREATE INDEX sponsors_watched ON sponsors (chain, watch_seq) WHERE watch_seq IS NOT NULL;

-- What sponsors owned after final blocks: the next reading is compared with the newest one and with the ledger between them.
CREATE TABLE sponsor_books (
    chain TEXT NOT NULL,
    sponsor {{blob}} NOT NULL,
    -- The newest reading.
    number BIGINT NOT NULL,
    hash {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    -- The reading from which on its open incident counts, and what came and left since by our record; NULL while none is open.
    since_number BIGINT,
    since_hash {{blob}},
    since_amount {{blob}},
    came {{blob}},
    gone {{blob}},
    PRIMARY KEY (chain, sponsor)
);

-- What the process that sends on a chain last reported.
CREATE TABLE sender_reports (
    chain TEXT NOT NULL PRIMARY KEY,
    heartbeat_us BIGINT NOT NULL,
    -- What its transactions are paid in.
    symbol TEXT NOT NULL,
    -- Since when its signer has not answered, and why; NULL while it does.
    signer_away_us BIGINT,
    signer_reason TEXT,
    -- What the chain takes of a usual transaction on top of gas, in base units; NULL until it was asked.
    surcharge TEXT
);

-- Which delegates pay on each chain: the last one each new transfer that a delegate pays. Each of them may have paid.
CREATE TABLE delegates (
    chain TEXT NOT NULL,
    -- 0 for the first, which nobody had to take.
    number BIGINT NOT NULL,
    -- Its name and all its addresses, as in transfers.route.
    delegate TEXT NOT NULL,
    since_us BIGINT NOT NULL,
    PRIMARY KEY (chain, number)
);

-- Where a person has stopped the sending.
CREATE TABLE sending_halts (
    chain TEXT NOT NULL PRIMARY KEY,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    since_us BIGINT NOT NULL
);

-- Chains whose sender recovers: this store may be an old copy. Nothing is signed there, and there is no verdict.
CREATE TABLE recoveries (
    chain TEXT NOT NULL PRIMARY KEY,
    -- What was noticed first, or why a person asked for it.
    reason TEXT NOT NULL,
    since_us BIGINT NOT NULL,
    -- A final block of this time, or of a later one, shows that all that may have been signed before is over.
    until_us BIGINT NOT NULL
);

-- Chains whose store was set back, or may have been: up to this block all is on record of the wallets that were watched then.
-- What a lost store did for others behind it may not be.
CREATE TABLE set_backs (
    chain TEXT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);

-- The signer whose journal is the one of this store, and how far each chain's sender has compared the two.
CREATE TABLE signer_journals (
    chain TEXT NOT NULL PRIMARY KEY,
    signer_id TEXT NOT NULL,
    -- All entries up to this one are on record here, or were noticed to be missing.
    compared_seq BIGINT NOT NULL,
    -- The newest entry that was seen: a journal without it was set back.
    newest_seq BIGINT NOT NULL,
    -- Why nothing is signed before a person adopts the signer; NULL where it is the one.
    strange TEXT
);

-- Transactions of sponsors, from before they are signed. Several may have one nonce: only one of them lands.
CREATE TABLE transfer_attempts (
    chain TEXT NOT NULL,
    sponsor {{blob}} NOT NULL,
    -- On Solana, where a sponsor's transactions have none, the next number of this sponsor's.
    nonce BIGINT NOT NULL,
    -- 0 for the first at this nonce.
    try BIGINT NOT NULL,
    -- Or the id of a refill.
    transfer_id TEXT NOT NULL,
    -- 'payment', 'cancellation', 'refill', or 'clearing': what takes delegates away, of this transfer's wallet first.
    purpose TEXT NOT NULL CHECK (purpose IN ('payment', 'cancellation', 'clearing', 'refill')),
    -- Which of the transfer's intents it carries or ends; 0 of a clearing and of a refill.
    deadline_secs BIGINT NOT NULL,
    -- On Solana the limit of compute units, and the price of one in millionths of a lamport; the tip is 0.
    gas_limit BIGINT NOT NULL,
    max_fee TEXT NOT NULL,
    tip TEXT NOT NULL,
    -- Which of the payer's authorizations it brings beside.
    authorization_nonce BIGINT,
    recorded_us BIGINT NOT NULL,
    -- Of one that makes a guard: the block whose hash it names, the guard's rent, 1 where it has a memo, and 1 where it
    -- pays for the recipient's account of the token.
    recent_hash {{blob}},
    recent_number BIGINT,
    guard_rent BIGINT,
    guard_memo BIGINT,
    guard_account BIGINT,
    -- NULL until it is signed.
    raw {{blob}},
    tx_id {{blob}},
    -- When it was handed to a node for the first and the last time, and what the node made of it then.
    sent_us BIGINT,
    resent_us BIGINT,
    response TEXT,
    PRIMARY KEY (chain, sponsor, nonce, try)
);
CREATE INDEX transfer_attempts_transfer ON transfer_attempts (transfer_id);
CREATE INDEX transfer_attempts_tx ON transfer_attempts (chain, tx_id) WHERE tx_id IS NOT NULL;

-- What the treasury of a chain gives its sponsors: one content for each of its nonces, from before it is signed first.
CREATE TABLE refills (
    chain TEXT NOT NULL,
    treasury {{blob}} NOT NULL,
    nonce BIGINT NOT NULL,
    -- Its attempts have it in the place of a transfer's.
    id TEXT NOT NULL,
    -- To which sponsor, and how much of the native currency, in base units.
    number BIGINT NOT NULL,
    recipient {{blob}} NOT NULL,
    amount {{blob}} NOT NULL,
    amount_text TEXT NOT NULL,
    recorded_us BIGINT NOT NULL,
    -- 'open'; 'landed' as a final block shows; or 'passed': its nonce is used in a final block, by none of its attempts here.
    state TEXT NOT NULL CHECK (state IN ('open', 'landed', 'passed')),
    -- Of one that landed.
    tx_id {{blob}},
    PRIMARY KEY (chain, treasury, nonce)
);
CREATE INDEX refills_open ON refills (chain) WHERE state = 'open';
CREATE UNIQUE INDEX refills_id ON refills (id);

-- Uses of intents that blocks show, of watched payers; they count while their block is canonical, and are never pruned.
CREATE TABLE marks (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    tx_id {{blob}} NOT NULL,
    payer {{blob}} NOT NULL,
    -- On Solana of each account that came into being in a transaction that the payer signed.
    intent_key {{blob}} NOT NULL,
    -- The contract that took the intent; on Solana what moved.
    asset {{blob}} NOT NULL,
    -- 'paid', 'nothing' or 'cancelled'.
    effect TEXT NOT NULL,
    -- Of a paid one.
    destination {{blob}},
    amount {{blob}},
    -- The payer's key is ours, no transfer of the key was on record when the block was, and no sender has noticed it yet.
    is_unknown BOOLEAN NOT NULL,
    -- A tier of the network, or an operator, calls its block final for this payment before it is final for all.
    is_granted BOOLEAN NOT NULL,
    PRIMARY KEY (chain, block_hash, tx_id, payer, intent_key, asset)
);
CREATE INDEX marks_granted ON marks (chain, block_number) WHERE is_granted;
CREATE INDEX marks_intent ON marks (chain, payer, intent_key);
CREATE INDEX marks_unknown ON marks (chain, block_hash) WHERE is_unknown;

-- Transactions by which something left a wallet or a sponsor, and that no attempt on record explained when their block was
-- recorded. They wait for finality: the sender finds what explains them, or quarantines the address.
CREATE TABLE spends (
    chain TEXT NOT NULL,
    block_hash {{blob}} NOT NULL,
    block_number BIGINT NOT NULL,
    tx_id {{blob}} NOT NULL,
    spender {{blob}} NOT NULL,
    -- Of the spender, where it paid for the transaction and its chain counts nonces.
    nonce BIGINT,
    -- Nobody has judged it yet.
    is_open BOOLEAN NOT NULL,
    -- It was judged, and nobody here signed it: what it took is in no ledger.
    is_foreign BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (chain, block_hash, tx_id, spender)
);
CREATE INDEX spends_number ON spends (chain, block_number) WHERE is_open;

-- Transactions of sponsors that the signer's journal has, and that no attempt on record is: another store asked for them.
CREATE TABLE journal_txs (
    chain TEXT NOT NULL,
    tx_id {{blob}} NOT NULL,
    -- The one that the journal names, whether that is on record or not; NULL where it names none.
    transfer_id TEXT,
    PRIMARY KEY (chain, tx_id)
);

-- What operators allow to be sent. A policy that is removed is kept, to be shown.
CREATE TABLE policies (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    label TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ACTIVE', 'REMOVED')),
    scope TEXT NOT NULL CHECK (scope IN ('ORGANIZATION', 'IDENTITY', 'ACCOUNT')),
    scope_id TEXT NOT NULL,
    -- NULL for every chain.
    chain TEXT,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL
);
CREATE INDEX policies_active ON policies (organization_id, scope, scope_id) WHERE status = 'ACTIVE';

CREATE TABLE policy_limits (
    policy_id TEXT NOT NULL REFERENCES policies (id),
    position BIGINT NOT NULL,
    period TEXT NOT NULL CHECK (period IN ('TRANSACTION', 'DAY', 'WEEK', 'MONTH')),
    symbol TEXT NOT NULL,
    -- In the major unit, as text; NULL where only the number of transfers is limited.
    amount TEXT,
    count BIGINT,
    PRIMARY KEY (policy_id, position),
    UNIQUE (policy_id, period, symbol),
    CHECK (amount IS NOT NULL OR count IS NOT NULL)
);

-- What native currencies cost, as it was observed. Insert only.
CREATE TABLE prices (
    symbol TEXT NOT NULL,
    observed_us BIGINT NOT NULL,
    -- USD for one major unit, as text.
    usd TEXT NOT NULL,
    -- 'table': a person set it. 'http': it was read from a URL.
    source TEXT NOT NULL,
    -- Until when another one is expected, if any is.
    good_until_us BIGINT,
    PRIMARY KEY (symbol, observed_us)
);

-- What sending costs. Insert only.
CREATE TABLE gas_ledger (
    -- What makes it the only one: its kind, with the organization (GRANT), the transfer (HOLD, RELEASE), or the chain, the
    -- transaction and the transfer, if it is of one that is on record (COST).
    entry TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('GRANT', 'HOLD', 'RELEASE', 'COST')),
    -- All but a GRANT: whose, and how much of which native currency. A COST of a refill, or of a transfer that is not on
    -- record, is of none.
    transfer_id TEXT REFERENCES transfers (id),
    chain TEXT,
    route TEXT,
    symbol TEXT,
    decimals BIGINT,
    amount {{blob}},
    amount_text TEXT,
    -- Of a COST: what of it is rent of accounts that the transaction made and that does not come back, in base units.
    rent BIGINT,
    -- The transaction, its final block, and who bears it.
    tx_id {{blob}},
    block_number BIGINT,
    block_hash {{blob}},
    bearer TEXT,
    at_us BIGINT NOT NULL
);
CREATE INDEX gas_ledger_newest ON gas_ledger (at_us, entry);
CREATE INDEX gas_ledger_transfer ON gas_ledger (transfer_id);
CREATE INDEX gas_ledger_tx ON gas_ledger (chain, tx_id) WHERE tx_id IS NOT NULL;
CREATE INDEX gas_ledger_route ON gas_ledger (chain, route, at_us, entry) WHERE kind = 'COST' AND bearer = 'CUSTOMER';

-- What entries are in millionths of a USD. Insert only: an entry is priced once, at once or later.
CREATE TABLE gas_pricings (
    entry TEXT NOT NULL PRIMARY KEY REFERENCES gas_ledger (entry),
    usd BIGINT NOT NULL,
    -- The parts of a COST.
    credit BIGINT NOT NULL,
    billed BIGINT NOT NULL,
    platform BIGINT NOT NULL,
    -- The price that it was made by; NULL for a GRANT.
    price TEXT,
    source TEXT,
    observed_us BIGINT,
    at_us BIGINT NOT NULL
);
CREATE INDEX gas_pricings_at ON gas_pricings (at_us, entry);

-- Entries that wait for a price: costs, and holds of transfers that are not sent before.
CREATE TABLE gas_unpriced (
    entry TEXT NOT NULL PRIMARY KEY REFERENCES gas_ledger (entry),
    chain TEXT NOT NULL,
    at_us BIGINT NOT NULL
);
CREATE INDEX gas_unpriced_chain ON gas_unpriced (chain, at_us, entry);

-- The sums of the costs that are priced in the ledger, in millionths of a USD: the row that is locked, so that nobody
-- spends the credit twice.
CREATE TABLE gas_credit (
    organization_id TEXT NOT NULL PRIMARY KEY,
    granted BIGINT NOT NULL,
    used BIGINT NOT NULL,
    billed BIGINT NOT NULL,
    platform BIGINT NOT NULL
);

-- What is held of the credit for transfers that have not ended, in millionths of a USD; by the entry of the ledger. Rows of
-- their own: who is billed beyond the credit holds without waiting for others.
CREATE TABLE gas_holds (
    entry TEXT NOT NULL PRIMARY KEY,
    usd BIGINT NOT NULL
);

-- Up to which final block of a chain all costs are in the ledger.
CREATE TABLE gas_booked (
    chain TEXT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);

-- Accounts that payments on Solana made: each once, as a final block shows. What one holds is its sponsor's, locked.
CREATE TABLE guards (
    transfer_id TEXT NOT NULL PRIMARY KEY REFERENCES transfers (id),
    chain TEXT NOT NULL,
    -- Who paid for it, and how much it was made with.
    sponsor {{blob}} NOT NULL,
    lamports BIGINT NOT NULL,
    -- The time of the block that made it.
    made_us BIGINT NOT NULL,
    -- 'standing', 'reclaimed' as a final block shows, or 'gone': it is there no more, and no block of ours says how.
    state TEXT NOT NULL CHECK (state IN ('standing', 'reclaimed', 'gone')),
    -- The last of its sponsor's reclaims that takes it back, and how much; NULL while none does.
    reclaim BIGINT,
    reclaim_lamports BIGINT
);
CREATE INDEX guards_standing ON guards (chain, made_us) WHERE state = 'standing';
CREATE INDEX guards_reclaim ON guards (chain, sponsor, reclaim) WHERE reclaim IS NOT NULL;

-- Transactions of sponsors that take back what guards hold, from before they are signed.
CREATE TABLE reclaims (
    chain TEXT NOT NULL,
    sponsor {{blob}} NOT NULL,
    number BIGINT NOT NULL,
    -- The block whose hash it names.
    recent_number BIGINT NOT NULL,
    recent_hash {{blob}} NOT NULL,
    compute_limit BIGINT NOT NULL,
    recorded_us BIGINT NOT NULL,
    -- NULL until it is signed, and when it was last handed to a node.
    raw {{blob}},
    tx_id {{blob}},
    sent_us BIGINT,
    -- 'open', 'landed', 'failed' where it landed and took nothing, or 'dead' where it cannot land any more.
    state TEXT NOT NULL CHECK (state IN ('open', 'landed', 'failed', 'dead')),
    PRIMARY KEY (chain, sponsor, number)
);
CREATE INDEX reclaims_open ON reclaims (chain) WHERE state = 'open';
CREATE INDEX reclaims_tx ON reclaims (chain, tx_id) WHERE tx_id IS NOT NULL;
