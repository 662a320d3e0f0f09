//! Sponsors: nonces without gaps, fees that are raised, keys that somebody else uses, and sponsors that are empty.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use landfall::api::openapi_json;
use landfall::feed::Numberer;
use landfall::key::Scope;
use landfall::transfer::{FailureCode, SponsorState, State};
use landfall_chain::{AssetId, U256};
use landfall_sim::{SendFault, SimLeg, SimTx, WEALTH};
use serde_json::Value;

use super::{Bench, LEASE_OVER, PAYER, token};
use crate::api::transfers::{PATH, send, serve};
use crate::harness::books::{self, rows};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, address, report};

async fn states(bench: &Bench) -> Vec<String> {
    let states: Vec<(String,)> = rows(bench.world.db(), "SELECT state FROM sponsors ORDER BY number").await;
    states.into_iter().map(|(state,)| state).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t15_many_at_once_have_distinct_nonces_without_gaps_and_no_sponsor_more_than_sixteen() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 4).await;
        let mut ids = Vec::new();
        for n in 0..64 {
            ids.push(bench.accept(n, 1_000).await);
        }
        bench.settle().await;
        let mut nonces: BTreeMap<Vec<u8>, Vec<i64>> = BTreeMap::new();
        for (sponsor, nonce, ..) in bench.attempts().await {
            nonces.entry(sponsor).or_default().push(nonce);
        }
        let all: Vec<i64> = (0..16).collect();
        assert_eq!(nonces.values().cloned().collect::<Vec<_>>(), vec![all; 4]);
        for id in ids {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        }
        assert_eq!(bench.attempts().await.len(), 64);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sponsor_whose_key_somebody_else_uses_is_quarantined_and_others_carry() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 2).await;
        bench.settle().await;
        let foreign = SimTx::new(bench.sponsor(0), 0, Vec::new());
        bench.world.chain.mine(vec![foreign]);
        // One endpoint's newest block decides nothing.
        let early = bench.accept(9, 1_000).await;
        bench.follow().await;
        assert_eq!(states(&bench).await, ["active", "active"]);
        assert_eq!(bench.until_ended(early).await, State::Confirmed);
        let ids = [bench.accept(1, 1_000).await, bench.accept(2, 1_000).await, bench.accept(3, 1_000).await];
        bench.follow().await;
        assert_eq!(states(&bench).await, ["quarantined", "active"]);
        for id in ids {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        }
        let attempts = bench.attempts().await;
        assert!(attempts.iter().all(|(of, ..)| of == bench.sponsor(1).as_bytes()), "{attempts:?}");
        bench.close().await;
    }
}

#[tokio::test]
async fn t13_a_nonce_that_somebody_else_used_is_followed_by_another() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    let foreign = SimTx::new(bench.sponsor(0), 0, Vec::new());
    bench.world.chain.mine(vec![foreign]);
    bench.follow().await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    let nonces: Vec<i64> = bench.attempts().await.into_iter().map(|(_, nonce, ..)| nonce).collect();
    assert_eq!(nonces, [0, 1]);
    assert_eq!(states(&bench).await, ["quarantined"]);
    let [incident] = &bench.foreign().await[..] else { panic!("one incident") };
    assert!(incident.what.contains("with nonce 0"), "{}", incident.what);
    bench.close().await;
}

#[tokio::test]
async fn what_a_quarantined_sponsor_had_to_carry_is_carried_by_others_and_it_signs_nothing_more() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.settle().await;
    bench.world.chain.set_base_fee(1);
    let stuck = bench.accept(1, 1_000).await;
    bench.settle().await;
    // Its offer is too low, and somebody else uses the nonces up to behind it: 1 was not ours yet.
    bench.world.chain.forget_pool();
    bench.world.chain.script_sends([SendFault::Lost; 20]);
    bench.add_sponsors(1).await;
    let by_hand = [SimTx::new(bench.sponsor(0), 0, Vec::new()), SimTx::new(bench.sponsor(0), 1, Vec::new())];
    bench.world.chain.mine(by_hand.to_vec());
    bench.blocks(FINALITY_DEPTH).await;
    let other = bench.accept(2, 1_000).await;
    bench.follow().await;
    assert_eq!(states(&bench).await[0], "quarantined");
    let before = attempts_of(&bench, 0).await;
    bench.world.chain.take_sends();
    assert_eq!(bench.until_ended(stuck).await, State::Confirmed);
    assert_eq!(bench.until_ended(other).await, State::Confirmed);
    assert_eq!(attempts_of(&bench, 0).await, before);
    bench.close().await;
}

#[tokio::test]
async fn a_sponsor_that_is_quarantined_while_it_carries_is_relieved_by_another() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let id = bench.accept(1, 1_000).await;
    bench.world.chain.script_sends([SendFault::Lost; 30]);
    bench.settle().await;
    let tx = "UPDATE sponsors SET state = 'quarantined' WHERE number = 0";
    crate::past::rescan::execute(bench.world.db(), tx).await;
    bench.add_sponsors(1).await;
    bench.settle().await;
    bench.world.chain.take_sends();
    bench.world.chain.forget_pool();
    let before = attempts_of(&bench, 0).await;
    bench.blocks(3).await;
    assert!(bench.state(id).await == State::Included, "{:?}", bench.shown(id).await);
    assert_eq!(attempts_of(&bench, 0).await, before);
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    bench.close().await;
}

#[tokio::test]
async fn what_a_sponsor_has_under_way_when_another_takes_its_place_is_watched_to_its_end() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let under_way = bench.accept(1, 1_000).await;
    bench.settle().await;
    bench.add_sponsors(1).await;
    let (active, paused) = (SponsorState::Active, SponsorState::Paused);
    bench.world.operator().set_sponsor(bench.world.db(), CHAIN, 0, (active, paused)).await.unwrap();
    // The other one is derived, and then checked.
    bench.tick().await;
    bench.tick().await;
    let later = bench.accept(2, 1_000).await;
    bench.settle().await;
    assert_eq!(states(&bench).await, ["paused", "active"]);
    assert_eq!([attempts_of(&bench, 0).await, attempts_of(&bench, 1).await], [1, 1]);
    // Its bytes are still sent again where a node forgot them.
    bench.world.chain.forget_pool();
    bench.blocks(2).await;
    for id in [under_way, later] {
        assert_eq!(bench.state(id).await, State::Included);
    }
    for id in [under_way, later] {
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
    }
    assert_eq!([attempts_of(&bench, 0).await, attempts_of(&bench, 1).await], [1, 1]);
    bench.close().await;
}

async fn attempts_of(bench: &Bench, sponsor: u32) -> usize {
    let address = bench.sponsor(sponsor);
    bench.attempts().await.iter().filter(|(of, ..)| of == address.as_bytes()).count()
}

#[tokio::test]
async fn fees_are_raised_when_nobody_takes_the_offer_and_only_one_of_the_offers_pays() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    let ids = [bench.accept(1, 1_000).await, bench.accept(2, 1_000).await];
    bench.settle().await;
    bench.world.chain.set_base_fee(1_000_000_000_000);
    bench.blocks(2).await;
    assert_eq!(bench.attempts().await.len(), 2);
    bench.block().await;
    // The lowest nonce first: the one behind it waits for it.
    let tries: Vec<(i64, i64)> = bench.attempts().await.into_iter().map(|(_, nonce, nth, ..)| (nonce, nth)).collect();
    assert_eq!(tries, [(0, 0), (0, 1), (1, 0)]);
    for id in ids {
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
    }
    assert_eq!(bench.world.chain.sent(&bench.sponsor(0)), 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_offered_than_an_operator_allows_and_what_waits_for_it_is_paid_when_fees_fall() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.network.sending.max_fee = Some(5_000_000_000);
    bench.restart();
    bench.world.pass(LEASE_OVER);
    let early = [bench.accept(1, 1_000).await, bench.accept(2, 1_000).await];
    bench.settle().await;
    bench.world.chain.set_base_fee(1_000_000_000_000);
    let ids = [early[0], early[1], bench.accept(3, 1_000).await];
    bench.blocks(8).await;
    let nonces: Vec<i64> = bench.attempts().await.into_iter().map(|(_, nonce, ..)| nonce).collect();
    assert!(
        nonces.iter().all(|nonce| *nonce < 2),
        "no block takes what may be offered, so no nonce is given: {nonces:?}"
    );
    let offered: Vec<(String,)> = rows(bench.world.db(), "SELECT max_fee FROM transfer_attempts").await;
    assert!(offered.iter().all(|(offer,)| offer.parse::<u128>().unwrap() <= 5_000_000_000), "{offered:?}");
    bench.world.chain.set_base_fee(1_000_000_000);
    for id in ids {
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
    }
    bench.close().await;
}

#[tokio::test]
async fn no_more_are_in_flight_than_an_operator_allows() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.network.sending.in_flight = 2;
    bench.restart();
    bench.world.pass(LEASE_OVER);
    let ids = [bench.accept(1, 1_000).await, bench.accept(2, 1_000).await, bench.accept(3, 1_000).await];
    bench.settle().await;
    assert_eq!(bench.attempts().await.len(), 2);
    for id in ids {
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
    }
    bench.close().await;
}

#[tokio::test]
async fn a_cancellation_is_offered_all_that_may_be_though_no_block_takes_it_yet() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.network.sending.max_fee = Some(5_000_000_000);
    bench.restart();
    bench.world.pass(LEASE_OVER);
    let id = bench.accept(1, 1_000).await;
    bench.settle().await;
    bench.world.chain.set_base_fee(1_000_000_000_000);
    bench.cancel(id).await.unwrap();
    bench.settle().await;
    let purposes: Vec<(String, i64)> =
        rows(bench.world.db(), "SELECT purpose, nonce FROM transfer_attempts ORDER BY try").await;
    assert_eq!(purposes.last().unwrap(), &("cancellation".to_owned(), 0), "{purposes:?}");
    bench.world.chain.set_base_fee(1_000_000_000);
    assert_eq!(bench.until_ended(id).await, State::Dropped(FailureCode::Cancelled));
    bench.close().await;
}

#[tokio::test]
async fn a_nonce_whose_offer_was_the_highest_and_is_forgotten_jams_nothing() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    // As much as a first attempt offers at most.
    bench.world.network.sending.max_fee = Some(1_000_000_000);
    bench.restart();
    bench.world.pass(LEASE_OVER);
    let lost = bench.accept(1, 1_000).await;
    bench.world.chain.script_sends([SendFault::Lost; 400]);
    bench.settle().await;
    while bench.state(lost).await == State::Carried {
        bench.block().await;
    }
    bench.world.chain.take_sends();
    let next = bench.accept(2, 1_000).await;
    bench.settle().await;
    assert_eq!(bench.until_ended(next).await, State::Confirmed);
    assert_eq!(bench.until_ended(lost).await, State::Dropped(FailureCode::WindowElapsed));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t2_the_nonce_of_what_ran_out_of_time_is_filled_by_what_waits_behind_it() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.refuse_gaps(true);
        let expires = bench.accept(1, 1_000).await;
        bench.world.chain.script_sends([SendFault::Lost; 400]);
        bench.settle().await;
        bench.blocks(20).await;
        let waiting = [bench.accept(2, 1_000).await, bench.accept(3, 1_000).await];
        bench.settle().await;
        while bench.state(expires).await == State::Carried {
            bench.block().await;
        }
        assert_eq!(bench.state(expires).await, State::Expiring);
        bench.world.chain.take_sends();
        bench.blocks(3).await;
        for id in waiting {
            assert_eq!(bench.state(id).await, State::Included);
        }
        // What comes later has a nonce that is good at once.
        let later = bench.accept(4, 1_000).await;
        bench.settle().await;
        bench.blocks(2).await;
        assert_eq!(bench.state(later).await, State::Included);
        assert_eq!(bench.until_ended(expires).await, State::Dropped(FailureCode::WindowElapsed));
        for id in waiting {
            assert_eq!(bench.until_ended(id).await, State::Confirmed);
        }
        assert_eq!(bench.until_ended(later).await, State::Confirmed);
        bench.close().await;
    }
}

#[tokio::test]
async fn a_nonce_that_nobody_needs_any_more_is_given_to_the_next_transfer() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.refuse_gaps(true);
    let expires = bench.accept(1, 1_000).await;
    bench.world.chain.script_sends([SendFault::Lost; 400]);
    bench.settle().await;
    assert_eq!(bench.until_ended(expires).await, State::Dropped(FailureCode::WindowElapsed));
    bench.world.chain.take_sends();
    let next = bench.accept(2, 1_000).await;
    bench.settle().await;
    bench.block().await;
    assert_eq!(bench.state(next).await, State::Included);
    let tries: Vec<(i64, i64)> = bench.attempts().await.into_iter().map(|(_, nonce, nth, ..)| (nonce, nth)).collect();
    assert!(tries.iter().all(|(nonce, _)| *nonce == 0), "{tries:?}");
    assert_eq!(bench.until_ended(next).await, State::Confirmed);
    bench.close().await;
}

#[tokio::test]
async fn what_an_empty_sponsor_cannot_carry_is_carried_by_another() {
    let mut bench = Bench::on(Engine::Sqlite, 2).await;
    bench.settle().await;
    let empty = bench.sponsor(0);
    let all = SimLeg { amount: U256::from(WEALTH), ..SimLeg::native(empty, address(PAYER), 0) };
    assert_eq!(all.asset, AssetId::Native);
    let gone = bench.by_hand(vec![all]);
    bench.world.chain.mine(vec![gone]);
    bench.follow().await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(bench.accept(n, 1_000).await);
    }
    bench.settle().await;
    for id in ids {
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_to_a_sponsor_is_no_deposit_and_no_event_and_counts_in_the_books_alone() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        let sponsor = bench.sponsor(0);
        let (deposits, events) = (bench.world.deposits().await, books::events(bench.world.db()).await);
        let legs = vec![SimLeg::native(address(PAYER), sponsor, 5), token(address(PAYER), sponsor, 7)];
        let paid = bench.by_hand(legs);
        bench.world.chain.mine(vec![paid]);
        bench.blocks(FINALITY_DEPTH).await;
        assert_eq!(bench.world.deposits().await, deposits, "{engine:?}");
        assert_eq!(books::events(bench.world.db()).await, events, "{engine:?}");
        let accounts: Vec<(String,)> = rows(bench.world.db(), "SELECT id FROM accounts").await;
        assert_eq!(accounts, [("alice".to_owned(),)], "{engine:?}");
        let arrived = "SELECT reason, recipient, amount_text FROM unattributed";
        let arrived: Vec<(String, Vec<u8>, String)> = rows(bench.world.db(), arrived).await;
        let funded = ("own_gas_topup".to_owned(), sponsor.as_bytes().to_vec(), "5".to_owned());
        assert_eq!(arrived, [funded], "{engine:?}");
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_of_the_api_names_a_sponsor_that_was_funded_and_has_paid_for_a_transfer() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.settle().await;
        let sponsor = bench.sponsor(0);
        let funding = bench.by_hand(vec![SimLeg::native(address(PAYER), sponsor, 5)]);
        bench.world.chain.mine(vec![funding]);
        let id = bench.accept(1, 1_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed, "{engine:?}");
        assert!(bench.world.chain.sent(&sponsor) > 0, "{engine:?}");
        report(&bench.world).await;
        Numberer::new(bench.world.db().clone(), "test".to_owned()).tick(bench.world.now()).await.unwrap();
        let (router, key) = serve(&bench.world, true, &[Scope::Read, Scope::Webhooks]).await;
        let document: Value = serde_json::from_str(&openapi_json()).unwrap();
        let lists = document["paths"].as_object().unwrap().iter();
        let lists = lists.filter(|(path, of)| of.get("get").is_some() && !path.contains('{'));
        let lists: Vec<String> = lists.map(|(path, _)| path.clone()).collect();
        assert!(lists.len() > 6, "{lists:?}");
        let of_alice =
            |path: String| if path.ends_with("/deposits") { format!("{path}?account_id=alice") } else { path };
        let single = ["", "/balances", "/coverage"].map(|of| format!("/v2/accounts/alice{of}"));
        let all = lists.into_iter().map(of_alice).chain(single).chain([format!("{PATH}/{id}")]);
        for path in all {
            let (status, body) = send(&router, &key, Method::GET, &path, String::new()).await;
            assert_eq!(status, StatusCode::OK, "{engine:?}: {path}: {body}");
            let is_named = body.to_string().to_lowercase().contains(&sponsor.to_string().to_lowercase());
            assert!(!is_named, "{engine:?}: {path} names a sponsor: {body}");
        }
        bench.close().await;
    }
}
