-- The second witness of what a trace shows, taken while nodes still have the state of the block, and kept with the sighting.

-- Who bears out what a trace told of the leg in this very block: 'two_endpoints' or 'balances'; NULL while nobody does. The
-- other columns are NULL with it.
ALTER TABLE inclusions ADD COLUMN witness TEXT;
-- Whether the leg is in the block; where it is not, it fails when the block is final.
ALTER TABLE inclusions ADD COLUMN witness_shows BOOLEAN;
-- Who paid it, and what moved to its recipient inside of its transaction, and inside of all transactions of the block.
ALTER TABLE inclusions ADD COLUMN witness_sender {{blob}};
ALTER TABLE inclusions ADD COLUMN paid_in_tx {{blob}};
ALTER TABLE inclusions ADD COLUMN paid_in_tx_text TEXT;
ALTER TABLE inclusions ADD COLUMN paid_in_block {{blob}};
ALTER TABLE inclusions ADD COLUMN paid_in_block_text TEXT;

-- The block whose witness was sought last, and whether it was final then: in another block, and once it is final, the tries
-- begin anew.
ALTER TABLE unwitnessed ADD COLUMN block_hash {{blob}};
ALTER TABLE unwitnessed ADD COLUMN is_final BOOLEAN NOT NULL DEFAULT true;
