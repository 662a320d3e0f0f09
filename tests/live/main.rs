//! The `live` ring: the real `landfall` process, real nodes (anvil, surfpool or solana-test-validator), real SQLite,
//! PostgreSQL and nats-server. One binary.
//!
//! `scripts/test` installs and names them: `LANDFALL_ANVIL`, `LANDFALL_SURFPOOL`, `LANDFALL_TEST_POSTGRES`,
//! `LANDFALL_TEST_PG_BIN`, `LANDFALL_NATS_SERVER`. A missing one fails the tests that need it; none is skipped. `stage`
//! is the harness.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

mod assets;
mod attack;
mod backfill;
mod balances;
mod believed;
mod canary;
mod contracts;
mod credits;
mod delegate_contracts;
mod delegated;
mod deliveries;
mod explain;
mod failure_codes;
mod fiat_token;
mod first_deposit;
mod foreign;
mod hook;
mod kills;
mod leaders;
mod nats;
mod nats_server;
mod op_stack;
mod outages;
mod own_delegate;
mod past;
mod payments;
mod polygon;
mod pool_rules;
mod postgres;
mod proxy;
mod raw_keys;
mod rebuild;
mod receivers;
mod refills;
mod reorgs;
mod restored;
mod sandbox;
mod schemathesis;
mod solana;
mod stage;
mod strangers;
mod tls;
mod torture;
mod traces;
mod transfers;
mod unexplained;
mod verifiers;
