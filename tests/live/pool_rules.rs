//! Payments by way of a pool that has the rules of real ones, in the words of five clients: a tenth more for a replacement,
//! 16 slots, no gaps, no sender that is poor. On the way transactions are forgotten, late, said to be known or taken in
//! silence; fees treble, and gas doubles. In the end each is paid once, and no nonce is left open.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use landfall::amount::to_decimal;
use landfall_chain::U256;
use landfall_node::pool::{Client, Offer, Pool, Refusal, Sender};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::proxy::Proxy;
use crate::stage::{Engine, Stage, full, given_seed};
use crate::transfers::{Bench, ETHER};

/// More than two sponsors may have under way.
const TRANSFERS: u32 = 40;
/// In how many of a hundred cases something goes wrong on the way.
const MISCHIEF_PERCENT: u32 = 25;
const LATE: Duration = Duration::from_secs(2);
/// Until this second no block is mined, and from it on the fees are too low.
const STUCK_FROM: u32 = 4;
const BASE_FEE: u64 = 20_000_000_000;
const GAS_DOUBLES: u32 = 8;
/// From this second on nothing goes wrong.
const ROUNDS: u32 = 20;
const STANDSTILL_MAX: Duration = Duration::from_secs(240);

/// The rules of a pool, and what may go wrong on the way to it.
pub(crate) struct Rules {
    client: Client,
    pool: Pool,
    rng: StdRng,
    /// In how many of a hundred cases something goes wrong.
    mischief_percent: u32,
    /// Gas costs twice as much as the node says.
    pub(crate) doubles_gas: bool,
    /// The most that was offered at a nonce, taken or not.
    offered: HashMap<(String, u64), u128>,
    /// How often each thing happened.
    tally: BTreeMap<String, u32>,
}

/// What becomes of a transaction that is handed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    Taken,
    /// It is taken, and nobody says so.
    Silent,
    /// It is taken a while later.
    Late(Duration),
    /// It is said to be taken under this hash, and is not.
    Forgotten(String),
    Refused(String),
}

impl Rules {
    pub(crate) fn of(client: Client, seed: u64) -> Self {
        let (pool, rng) = (Pool::default(), StdRng::seed_from_u64(seed));
        let (offered, tally) = (HashMap::new(), BTreeMap::new());
        Rules { client, pool, rng, mischief_percent: 0, doubles_gas: false, offered, tally }
    }

    /// `gas_min`: with less it is refused.
    pub(crate) fn judge(&mut self, offer: Offer, sender: Sender, gas_min: u64) -> Judged {
        let place = (offer.sender.to_string(), offer.nonce);
        let before = self.offered.get(&place).copied();
        let is_raised = before.is_some_and(|before| before < offer.max_fee);
        self.offered.insert(place, offer.max_fee.max(before.unwrap_or_default()));
        let strikes = self.rng.random_range(0..100) < self.mischief_percent;
        let how = if strikes { self.rng.random_range(1..=4) } else { 0 };
        if how == 1 {
            self.count("forgotten");
            return Judged::Forgotten(offer.hash.to_string());
        }
        if how == 2 {
            self.count("said to be known");
            return Judged::Refused(self.client.words(Refusal::Known, &offer, sender));
        }
        let taken = match offer.gas_limit < gas_min {
            true => Err(Refusal::GasTooLow),
            false => self.pool.offer(offer.clone(), sender),
        };
        if let Err(refusal) = taken {
            self.count(&format!("refused: {refusal:?}"));
            return Judged::Refused(self.client.words(refusal, &offer, sender));
        }
        if is_raised {
            self.count("taken with higher fees");
        }
        let (what, judged) = match how {
            3 => ("taken in silence", Judged::Silent),
            4 => ("taken late", Judged::Late(LATE)),
            _ => ("taken", Judged::Taken),
        };
        self.count(what);
        judged
    }

    fn count(&mut self, what: &str) {
        *self.tally.entry(what.to_owned()).or_default() += 1;
    }

    fn times(&self, what: &str) -> u32 {
        self.tally.get(what).copied().unwrap_or_default()
    }
}

/// One client of the five, by the seed; each in the full run.
#[tokio::test(flavor = "multi_thread")]
async fn under_the_rules_of_a_real_pool_each_transfer_is_paid_once() {
    let seed = given_seed();
    let first = usize::try_from(seed % 5).unwrap();
    let count = if full() { Client::ALL.len() } else { 1 };
    for client in Client::ALL.into_iter().cycle().skip(first).take(count) {
        are_paid_once(client, seed).await;
    }
}

async fn are_paid_once(client: Client, seed: u64) {
    let stage = Stage::new(Engine::Sqlite).await;
    let proxy = Proxy::start(stage.node.url()).await;
    stage.replace_in_config(stage.node.url(), &proxy.url);
    let soon = "finality = \"finalized\"\ntransfers = { bump_after_blocks = 1 }";
    stage.replace_in_config("finality = \"finalized\"", soon);
    let bench = Bench::on(stage).await;
    let before = bench.mined().await;
    proxy.keep_rules(client, seed);
    proxy.rules(|rules| rules.mischief_percent = MISCHIEF_PERCENT);
    let amount = |nth: u32| to_decimal(U256::from(nth), 6);
    let amounts: Vec<String> = (1..=TRANSFERS).map(amount).collect();
    let asked = (1..=TRANSFERS).zip(&amounts).map(|(nth, amount)| bench.send(nth, amount));
    let ids: Vec<String> = join_all(asked).await;
    let (node, begun) = (&bench.stage.node, Instant::now());
    for round in 0.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match round {
            STUCK_FROM => {
                // Above what any of them offered.
                node.rpc("anvil_setNextBlockBaseFeePerGas", json!([format!("{BASE_FEE:#x}")])).await.unwrap();
            }
            GAS_DOUBLES => proxy.rules(|rules| rules.doubles_gas = true),
            ROUNDS => proxy.rules(|rules| rules.mischief_percent = 0),
            _ => {}
        }
        if round >= STUCK_FROM {
            proxy.mine(node).await;
        }
        let mut open = 0;
        for id in &ids {
            open += u32::from(bench.transfer(id).await["status"] != "CONFIRMED");
        }
        if open == 0 && round > ROUNDS {
            break;
        }
        assert!(begun.elapsed() < STANDSTILL_MAX, "{client:?}: {open} wait: {}", bench.log());
    }
    let sum: u64 = (1..=u64::from(TRANSFERS)).sum();
    assert_eq!(bench.bobs().await, sum, "each once");
    assert!(bench.sponsors_have().await < U256::from(2 * ETHER));
    let (sent, mined) = (bench.sent().await, bench.mined().await);
    assert_eq!(sent, mined, "no nonce is left in the pool");
    proxy.rules(|rules| {
        println!(
            "{client:?}: {} transactions of {TRANSFERS} transfers, {} s: {:?}",
            mined - before,
            begun.elapsed().as_secs(),
            rules.tally
        );
        let strikes = ["forgotten", "said to be known", "taken in silence", "taken late"].map(|what| rules.times(what));
        assert!(strikes.iter().sum::<u32>() > 0, "{:?}", rules.tally);
        assert!(rules.times("taken with higher fees") > 0, "{:?}", rules.tally);
        for never in [Refusal::Full, Refusal::InFlight, Refusal::Reserved, Refusal::Poor] {
            assert_eq!(rules.times(&format!("refused: {never:?}")), 0, "{:?}", rules.tally);
        }
    });
}
