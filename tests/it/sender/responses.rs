//! What follows each answer of a node to a transaction, as one table. The node has pooled nothing, whatever it answers.
//!
//! Behind each answer the transfer stays as it is and keeps its nonce, and the same bytes are sent again. What still
//! waits then has its offer raised; with a guard another attempt is made. Only a sponsor that nodes do not serve rests.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall::transfer::{State, TransferId};
use landfall_chain::{BroadcastResponse, Route};
use landfall_sim::SendFault;

use super::{AttemptRow, Bench};
use crate::harness::books::rows;
use crate::harness::postgres::{Engine, TestStore};

const MOMENT: Duration = Duration::from_secs(1);
/// The same bytes are sent again, and the offer is raised, so long after the first time.
const RESENT: Duration = Duration::from_secs(10);
const RAISED: Duration = Duration::from_secs(36);
/// The same with a guard, where another attempt follows.
const RESENT_GUARDED: Duration = Duration::from_secs(2);
const NEXT_GUARDED: Duration = Duration::from_secs(20);

/// A row: what follows an answer beside what follows each.
struct Follows {
    /// The sponsor carries nothing new for 30 s. Another one carries the transfer: at once, or with the next attempt.
    rests: bool,
    /// It is reported as a sponsor that owns too little.
    is_poor: bool,
}

const fn follows(answer: BroadcastResponse) -> Follows {
    const NOTHING_ELSE: Follows = Follows { rests: false, is_poor: false };
    match answer {
        // A node that says it has them may forget them.
        BroadcastResponse::Pooled => NOTHING_ELSE,
        BroadcastResponse::Known => NOTHING_ELSE,
        // Only blocks say whose transaction used it; until then no other nonce is given.
        BroadcastResponse::NonceUsed => NOTHING_ELSE,
        BroadcastResponse::Underpriced => NOTHING_ELSE,
        // The nonces before it are sent first.
        BroadcastResponse::Gapped => NOTHING_ELSE,
        BroadcastResponse::Poor => Follows { rests: true, is_poor: true },
        BroadcastResponse::Delegated => Follows { rests: true, is_poor: false },
        // What waits of the payer's own ends by itself.
        BroadcastResponse::Reserved => NOTHING_ELSE,
        // One node's opinion.
        BroadcastResponse::Refused => NOTHING_ELSE,
        // Only blocks say that it is too old.
        BroadcastResponse::Expired => NOTHING_ELSE,
        BroadcastResponse::Unknown => NOTHING_ELSE,
    }
}

impl Bench {
    async fn attempts_for(&self, id: TransferId) -> Vec<AttemptRow> {
        let id = id.to_string();
        self.attempts().await.into_iter().filter(|(.., of, _)| *of == id).collect()
    }

    /// A transfer of which a node answers this to the first transaction, and the attempts that there are then.
    async fn answered(&mut self, n: u32, answer: BroadcastResponse) -> (TransferId, Vec<AttemptRow>) {
        let id = self.accept(n, 1_000).await;
        self.world.chain.script_sends([SendFault::Answer(answer)]);
        self.settle().await;
        assert_eq!(self.state(id).await, State::Carried, "{answer:?}");
        let attempts = self.attempts_for(id).await;
        let text = "SELECT transfer_id, response FROM transfer_attempts ORDER BY sponsor, nonce, try";
        let all: Vec<(String, String)> = rows(self.world.db(), text).await;
        let of_it = all.into_iter().filter(|(of, _)| *of == id.to_string());
        let mut expected = vec!["pooled".to_owned(); attempts.len()];
        expected[0] = answer.name().to_owned();
        assert_eq!(of_it.map(|(_, response)| response).collect::<Vec<_>>(), expected, "on record");
        let text = "SELECT address, poor_since_us FROM sponsors WHERE poor_since_us IS NOT NULL";
        let poor: Vec<(Vec<u8>, i64)> = rows(self.world.db(), text).await;
        let is_new = poor.contains(&(attempts[0].0.clone(), self.world.now().0));
        assert_eq!(is_new, follows(answer).is_poor, "{answer:?}: {poor:?}");
        (id, attempts)
    }

    /// A row of the table where transactions have nonces.
    async fn has_nonces(&mut self, n: u32, answer: BroadcastResponse) -> TransferId {
        let (id, first) = self.answered(n, answer).await;
        let places: Vec<(Vec<u8>, i64)> = first.iter().map(|(sponsor, nonce, ..)| (sponsor.clone(), *nonce)).collect();
        assert_eq!(places.len(), carriers(answer), "{answer:?}: {first:?}");
        assert_eq!(sponsors(&first), carriers(answer), "{answer:?}: {first:?}");

        self.world.pass(RESENT - MOMENT);
        assert_eq!(self.tick().await.sent, 0, "{answer:?}: not yet");
        self.world.pass(MOMENT);
        assert_eq!(self.tick().await.sent, places.len(), "{answer:?}: what rests sends what it has");
        let pooled = self.world.chain.pooled().into_iter();
        let pooled: Vec<(Vec<u8>, i64)> =
            pooled.map(|(sponsor, nonce)| (sponsor.as_bytes().to_vec(), i64::try_from(nonce).unwrap())).collect();
        assert_eq!((self.attempts_for(id).await, pooled), (first, places.clone()), "{answer:?}: the same bytes");

        self.world.pass(RAISED - RESENT);
        self.settle().await;
        let tries: Vec<(Vec<u8>, i64, i64)> =
            self.attempts_for(id).await.into_iter().map(|(sponsor, nonce, nth, ..)| (sponsor, nonce, nth)).collect();
        let raised: Vec<(Vec<u8>, i64, i64)> =
            places.iter().flat_map(|(of, nonce)| [0, 1].map(|nth| (of.clone(), *nonce, nth))).collect();
        assert_eq!(tries, raised, "{answer:?}: once each, at the nonces that there were");
        assert_eq!(self.state(id).await, State::Carried, "{answer:?}");
        // The time of the chain is that of the clock again, and whoever rested carries again.
        self.blocks(3).await;
        assert_eq!(self.state(id).await, State::Included, "{answer:?}");
        id
    }

    /// A row of the table where each transaction makes a guard.
    async fn has_guard(&mut self, n: u32, answer: BroadcastResponse) -> TransferId {
        let (id, first) = self.answered(n, answer).await;
        let [(sponsor, ..)] = &first[..] else { panic!("{answer:?}: {first:?}") };

        self.world.pass(RESENT_GUARDED - MOMENT);
        assert_eq!(self.tick().await.sent, 0, "{answer:?}: not yet");
        self.world.pass(MOMENT);
        assert_eq!(self.tick().await.sent, 1, "{answer:?}");
        let pooled = self.world.chain.pooled_guarded();
        let pooled: Vec<&[u8]> = pooled.iter().map(|guarded| guarded.sponsor.as_bytes()).collect();
        assert_eq!(pooled, [sponsor.as_slice()], "{answer:?}: the same bytes");
        assert_eq!(self.attempts_for(id).await, first, "{answer:?}: the same bytes");

        self.world.pass(NEXT_GUARDED - RESENT_GUARDED);
        // Another blockhash, as it is 20 seconds later.
        self.world.chain.mine_some(0);
        self.follow().await;
        let attempts = self.attempts_for(id).await;
        assert_eq!((attempts.len(), sponsors(&attempts)), (2, carriers(answer)), "{answer:?}: {attempts:?}");
        assert_eq!(self.state(id).await, State::Carried, "{answer:?}");
        // Until whoever rested carries again: 36 s in all.
        self.blocks(2).await;
        assert_eq!(self.state(id).await, State::Included, "{answer:?}");
        id
    }

    /// All of them are CONFIRMED, and were paid once.
    async fn are_paid_once(mut self, ids: Vec<TransferId>) {
        assert_eq!(self.world.chain.sends_struck().into_iter().collect::<Vec<_>>(), [("answer", 11)]);
        for id in ids {
            assert_eq!(self.until_ended(id).await, State::Confirmed);
            assert_eq!(self.payments(id).len(), 1);
            assert_eq!(self.history(id).await, ["accepted", "carried", "included", "confirmed"]);
        }
        self.close().await;
    }
}

/// How many sponsors carry it, once the one that rests is relieved.
fn carriers(answer: BroadcastResponse) -> usize {
    if follows(answer).rests { 2 } else { 1 }
}

fn sponsors(attempts: &[AttemptRow]) -> usize {
    attempts.iter().map(|(sponsor, ..)| sponsor).collect::<BTreeSet<_>>().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_changes_a_state_or_gives_up_a_nonce_and_what_follows_each_stands_in_the_table() {
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    let mut ids = Vec::new();
    for (n, answer) in (0..).zip(BroadcastResponse::BEST_FIRST) {
        ids.push(bench.has_nonces(n, answer).await);
    }
    bench.are_paid_once(ids).await;

    let route = Route::Guard { program: None, decimals: 6 };
    let mut bench = Bench::by_route(TestStore::fresh(Engine::Sqlite).await, 1, 2, route).await;
    let mut ids = Vec::new();
    for (n, answer) in (0..).zip(BroadcastResponse::BEST_FIRST) {
        ids.push(bench.has_guard(n, answer).await);
    }
    assert_eq!(bench.world.chain.landed_guarded(), (22, 11), "of each pair one landed for nothing");
    bench.are_paid_once(ids).await;
}
