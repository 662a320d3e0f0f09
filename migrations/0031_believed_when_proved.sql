-- What balances allow to have been paid to the deposit's recipient inside of the block's transactions, where they can tell: 32 bytes, big-endian.
ALTER TABLE unwitnessed ADD COLUMN allowed {{blob}};
-- Whether a person decided that the deposit, which is in no block of ours, was not paid.
ALTER TABLE unwitnessed ADD COLUMN given_up BOOLEAN NOT NULL DEFAULT false;
-- That two endpoints reported a trace alike is no witness any more, for they may run the same program: it is judged again.
UPDATE inclusions SET witness = NULL, witness_shows = NULL, witness_sender = NULL, paid_in_tx = NULL, paid_in_tx_text = NULL,
    paid_in_block = NULL, paid_in_block_text = NULL WHERE witness = 'two_endpoints';
