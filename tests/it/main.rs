//! The `it` ring: everything that needs no real node. One binary.
//!
//! `world` is the harness: a simulated chain, a real store, a watcher driven tick by tick. Tests go through the doors
//! of the product. `LANDFALL_FULL=1` runs the full counts, otherwise a bounded share; the output says which.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

mod ahead;
mod api;
mod api_accounts;
mod api_auth;
mod api_webhooks;
mod backfill;
mod books;
mod by_logs;
mod changed;
mod cli;
mod cli_webhooks;
mod corners;
mod crashes;
mod delivery;
mod delivery_guard;
mod early_witness;
mod endpoints;
mod explain;
mod faults;
mod finality;
mod follower;
mod forgetful;
mod forms;
mod histories;
mod identities;
mod integrity;
mod lanes;
mod layers;
mod nodes;
mod postgres;
mod reorgs;
mod rescan;
mod rows;
mod side_by_side;
mod signatures;
mod signers;
mod slots;
mod solana;
mod solana_assets;
mod solana_books;
mod solana_calls;
mod solana_explain;
mod solana_ledger;
mod solana_line;
mod solana_past;
mod solana_proof;
mod solana_rescan;
mod solana_run;
mod solana_senders;
mod store;
mod traced_past;
mod traces;
mod untraced;
mod vectors;
mod watching;
mod webhook_urls;
mod witnessed_early;
mod world;
