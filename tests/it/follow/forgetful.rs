//! Full nodes that are no archive, with the real EVM source before real sockets. When a block is final, they have
//! neither its state nor its traces any more. What moved inside of its transactions is CONFIRMED all the same.

use landfall_chain::Address;
use landfall_node::{Chain, Server, Tx};

use crate::harness::follower::{Audit, Followed, Mode, network};

const ALICE: [u8; 20] = [0xa1; 20];
const CONTRACT: [u8; 20] = [0xc0; 20];
const FINALITY_DEPTH: u64 = 20;
const STATE_KEPT: u64 = 4;

async fn follower(seeds: &[u64]) -> Followed {
    let chain = Chain::of(&network(Mode::Traces), 7);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    let follower = Followed::new(chain, Mode::Traces, seeds, vec![Address::Evm(ALICE)]).await;
    follower.servers.iter().for_each(|server| server.keep_state(STATE_KEPT));
    follower
}

/// Mines and follows some blocks that pay Alice inside of a transaction each, and then as many as make all of them
/// final.
async fn pay_and_finalise(follower: &mut Followed) -> Audit {
    for number in 0..FINALITY_DEPTH + 10 {
        let pays = number < 5;
        let tx = |nonce| Tx::forward(0, nonce, CONTRACT.into(), ALICE.into(), 100 + nonce);
        follower.chain.mine(if pays { vec![tx(number)] } else { Vec::new() });
        // The second tick finds the final block that both endpoints have reported by then.
        for _ in 0..2 {
            follower.tick().await.unwrap();
            follower.trace().await.unwrap();
        }
    }
    let audit = follower.audit().await;
    assert_eq!(audit.kinds.inner, 5);
    audit
}

/// How often the state of accounts and traces were asked for.
fn asked(server: &Server) -> (u64, u64) {
    let calls = server.counts().calls;
    let count = |method: &str| calls.get(method).copied().unwrap_or_default();
    (count("eth_getProof"), count("debug_traceBlockByHash"))
}

#[tokio::test]
async fn one_tracing_endpoint_and_its_proofs_confirm_what_was_witnessed_while_the_state_was_there() {
    let mut follower = follower(&[1]).await;
    let audit = pay_and_finalise(&mut follower).await;
    assert!(audit.is_clean(), "{audit:?}");
    // A proof before and one behind each of five blocks; each block with transactions was traced once.
    assert_eq!(asked(&follower.servers[0]), (10, 5));
}

#[tokio::test]
async fn two_tracing_endpoints_confirm_without_proofs_and_without_a_second_trace() {
    let mut follower = follower(&[1, 2]).await;
    follower.servers.iter().for_each(|server| server.set_missing(&["eth_getProof"]));
    let audit = pay_and_finalise(&mut follower).await;
    assert!(audit.is_clean(), "{audit:?}");
    // That nobody proves is found out once, of the first block that pays: before it and behind it, by hash and by
    // number.
    for (proofs, traces) in follower.servers.iter().map(asked) {
        assert!(proofs <= 4 && traces == 5, "{proofs} proofs, {traces} traces");
    }
}

#[tokio::test]
async fn a_traced_block_that_pays_nobody_of_ours_costs_three_requests_as_before() {
    let mut follower = follower(&[1]).await;
    let somebody = [0xee; 20];
    for nonce in 0..3 {
        follower.chain.mine(vec![Tx::forward(0, nonce, CONTRACT.into(), somebody.into(), 5)]);
        follower.tick().await.unwrap();
        follower.trace().await.unwrap();
    }
    follower.servers[0].take_counts();
    for nonce in 3..13 {
        follower.chain.mine(vec![Tx::forward(0, nonce, CONTRACT.into(), somebody.into(), 5)]);
        follower.tick().await.unwrap();
        follower.trace().await.unwrap();
    }
    assert_eq!(follower.servers[0].take_counts().requests, 30);
}
