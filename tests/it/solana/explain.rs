//! `deposit explain` on Solana: each verdict that can occur, with the codes of the closed list, over scripted blocks.

use landfall::watcher::explain::{ExplainError, Explanation, TraceReading, explain};
use landfall_chain::{AssetId, Chain, TxId, Verdict};
use landfall_cluster::{Fault, Ledger as Cluster, Tx, When};
use landfall_solana::{EndpointUrl, Options, SolanaSource, Wrapped};
use serde_json::{Value, json};

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::solana_ledger::{Ledger, Mint, Place, RENT, TOKEN_2022, asset, listing_wrapped, owner};
use crate::harness::solana_line::{Line, with};

const SLOT: u64 = 12;

/// Recipient, amount and verdict of a leg.
type Judged = (u8, u64, Verdict);

fn id(tx: &Value) -> TxId {
    TxId::parse(landfall_chain::Family::Solana, tx["transaction"]["signatures"][0].as_str().unwrap()).unwrap()
}

async fn ask(line: &Line, tx: &Value) -> Option<Explanation> {
    explain(&line.source, &line.store.db, &line.network, id(tx)).await.unwrap()
}

/// What is reported of each leg, in order.
fn verdicts(reported: &Explanation) -> Vec<Judged> {
    let leg = |leg: &landfall::watcher::explain::ExplainedLeg| {
        (leg.transfer.recipient.as_bytes()[0], leg.transfer.amount.to::<u64>(), leg.verdict)
    };
    let mut legs: Vec<_> = reported.legs.iter().map(leg).collect();
    legs.sort_unstable();
    legs
}

#[tokio::test]
async fn a_transaction_that_one_does_not_know_is_not_unknown_while_another_cannot_be_asked() {
    let mut ledger = Ledger::new();
    let tx = ledger.tx(0x23, |it| it.send(0x23, 0x21, 5));
    let blocks = with(Cluster::of(10..=15), SLOT, [tx.clone()]);
    let mut line = Line::of(listing_wrapped(), TestStore::fresh(Engine::Sqlite).await, Cluster::of(10..=11), 2).await;
    let cannot_be_asked = |line: &Line| {
        line.nodes[1].confine("getSignatureStatuses");
        line.nodes[1].misbehave(Fault::ServerError, When::Always);
    };
    assert_eq!(ask(&line, &tx).await, None);
    cannot_be_asked(&line);
    let error = explain(&line.source, &line.store.db, &line.network, id(&tx)).await.unwrap_err();
    assert!(matches!(error, ExplainError::Unanswered { .. }), "{error}");

    // What is on record is reported from there.
    line.nodes[1].behave();
    line.replace_record(&blocks);
    line.catch_up().await;
    line.replace_record(&Cluster::of(10..=15));
    cannot_be_asked(&line);
    assert_eq!(verdicts(&ask(&line, &tx).await.unwrap()), [(0x21, 5, Verdict::Unproved)]);
}

/// What happens, and what is said of it while it is PENDING.
fn cases(ledger: &mut Ledger) -> Vec<(&'static str, Value, Vec<Judged>)> {
    let usdc = |who: u8| (who, Mint::Usdc, Place::Associated);
    let (stray, wrapped) = ((0x21, Mint::Usdc, Place::Stray), (0x21, Mint::Wrapped, Place::Associated));
    let spam = (0x21, Mint::Spam, Place::Associated);
    vec![
        ("sol to us", ledger.tx(0x23, |it| it.send(0x23, 0x21, 5)), vec![(0x21, 5, Verdict::Pending)]),
        ("tokens to us", ledger.tx(0x23, |it| it.pay(usdc(0x23), usdc(0x21), 6)), vec![(0x21, 6, Verdict::Pending)]),
        ("sol to others", ledger.tx(0x21, |it| it.send(0x21, 0x23, 7)), vec![(0x23, 7, Verdict::NotWatched)]),
        (
            "sol to who is watched later",
            ledger.tx(0x23, |it| it.send(0x23, 0x24, 8)),
            vec![(0x24, 8, Verdict::NotWatchedThen)],
        ),
        (
            "into another account of ours",
            ledger.tx(0x23, |it| {
                it.open(stray, 0x23);
                it.pay(usdc(0x23), stray, 9);
            }),
            vec![(0x21, 9, Verdict::IneligibleTokenAccount)],
        ),
        (
            "between our own accounts, and one is closed",
            ledger.tx(0x21, |it| {
                it.pay(stray, usdc(0x21), 9);
                it.close(stray);
            }),
            vec![(0x21, 9, Verdict::SelfTransfer), (0x21, RENT, Verdict::RentRefund)],
        ),
        (
            "a token that nobody lists",
            ledger.tx(0x23, |it| {
                it.open(spam, 0x23);
                it.mint(spam, 10);
            }),
            vec![(0x21, 10, Verdict::UnlistedToken)],
        ),
        (
            "own SOL is wrapped",
            ledger.tx(0x21, |it| {
                it.open(wrapped, 0x21);
                it.wrap(0x21, wrapped, 11);
            }),
            vec![(0x21, 11, Verdict::SelfTransfer)],
        ),
        ("it failed", ledger.failed(0x21), vec![(0x21, 0, Verdict::RevertedTx)]),
    ]
}

/// A transfer of no tokens: the accounts are named, and nothing of them changes.
fn nothing(ledger: &mut Ledger) -> Value {
    let mut tx =
        ledger.tx(0x23, |it| it.pay((0x23, Mint::Usdc, Place::Associated), (0x21, Mint::Usdc, Place::Associated), 1));
    for side in ["preTokenBalances", "postTokenBalances"] {
        tx["meta"][side][0]["uiTokenAmount"]["amount"] = json!("5");
        tx["meta"][side][1]["uiTokenAmount"]["amount"] = json!("7");
    }
    tx
}

#[tokio::test]
async fn every_verdict_of_solana_is_reported_of_scripted_blocks() {
    let mut ledger = Ledger::new();
    let mut cases = cases(&mut ledger);
    let zero = nothing(&mut ledger);
    cases.push(("of nothing", zero, vec![(0x21, 0, Verdict::ZeroValue), (0x23, 0, Verdict::ZeroValue)]));
    let blocks = with(Cluster::of(10..=15), SLOT, cases.iter().map(|(_, tx, _)| tx.clone()));
    let mut line = Line::of(listing_wrapped(), TestStore::fresh(Engine::Sqlite).await, blocks, 1).await;
    line.catch_up().await;
    line.watch("later", owner(0x24)).await;
    for (what, tx, expected) in &cases {
        let reported = ask(&line, tx).await.unwrap();
        assert_eq!(verdicts(&reported), *expected, "{what}");
        assert_eq!(
            (reported.is_final, reported.block.unwrap().number, &reported.traces),
            (false, SLOT, &TraceReading::NotTraced)
        );
    }
    line.finalize(15);
    line.catch_up().await;
    let reported = ask(&line, &cases[0].1).await.unwrap();
    assert_eq!((verdicts(&reported), reported.is_final), (vec![(0x21, 5, Verdict::Credited)], true));
    assert_eq!(reported.legs[0].deposit.as_ref().unwrap().account_id, "account 33");
    // What nobody knows.
    assert_eq!(ask(&line, &ledger.failed(0x23)).await, None);
}

#[tokio::test]
async fn who_is_watched_on_another_network_and_what_its_block_shows_no_more_have_codes_of_their_own() {
    let mut ledger = Ledger::new();
    let mut another = ledger.clone();
    let paid = ledger.tx(0x23, |it| it.send(0x23, 0x21, 5));
    // The same transaction, as whoever left its payment to us out would report it.
    let left_out = another.tx(0x23, |it| it.send(0x23, 0x24, 5));
    assert_eq!(id(&paid), id(&left_out));
    let elsewhere = ledger.tx(0x23, |it| it.send(0x23, 0x24, 8));
    let blocks = with(Cluster::of(10..=15), SLOT, [paid.clone(), elsewhere.clone()]);
    let mut line = Line::of(listing_wrapped(), TestStore::fresh(Engine::Sqlite).await, blocks.clone(), 1).await;
    line.watch_on(Chain::SolanaDevnet, "of devnet", owner(0x24)).await;
    line.catch_up().await;
    let (_, verdict, why) = of(&line.source, &line, &elsewhere, 0x24).await;
    assert_eq!((verdict, why.as_str()), (Verdict::ChainNotRegistered, "its recipient is watched on SOLANA_DEVNET"));
    assert_eq!(of(&line.source, &line, &paid, 0x21).await.1, Verdict::Pending);

    blocks.amend(SLOT, |block| block.txs[0] = Tx::raw(&left_out));
    let (_, verdict, why) = of(&line.source, &line, &paid, 0x21).await;
    assert_eq!((verdict, why.as_str()), (Verdict::Unproved, "PENDING, and its transaction's block does not show it"));
}

/// What is said of the only leg to `who`: asset, verdict and words.
async fn of(source: &SolanaSource, line: &Line, tx: &Value, who: u8) -> (AssetId, Verdict, String) {
    let reported = explain(source, &line.store.db, &line.network, id(tx)).await.unwrap().unwrap();
    let legs: Vec<_> = reported.legs.into_iter().filter(|leg| leg.transfer.recipient == owner(who)).collect();
    let [leg] = legs.as_slice() else { panic!("one leg to {who:#x}: {legs:?}") };
    (leg.transfer.asset, leg.verdict, leg.why.clone())
}

#[tokio::test]
async fn tokens_that_are_not_listed_are_reported_as_such_and_wrapped_sol_among_them_unless_it_is_sol() {
    let mut ledger = Ledger::new();
    let ours = |mint| (0x21, mint, Place::Associated);
    let theirs = |mint| (0x23, mint, Place::Associated);
    let mut paid = |mint: Mint, amount| {
        ledger.tx(0x23, |it| {
            it.open(ours(mint), 0x23);
            it.open(theirs(mint), 0x23);
            match mint {
                Mint::Wrapped => it.wrap(0x23, theirs(mint), amount),
                Mint::Usdc | Mint::Spam => it.mint(theirs(mint), amount),
            }
        });
        ledger.tx(0x23, |it| it.pay(theirs(mint), ours(mint), amount))
    };
    let (spam, wrapped) = (paid(Mint::Spam, 10), paid(Mint::Wrapped, 11));
    ledger.program = Some(TOKEN_2022);
    let elsewhere = ledger.tx(0x23, |it| it.pay(theirs(Mint::Usdc), ours(Mint::Usdc), 12));
    let blocks = with(Cluster::of(10..=15), SLOT, [spam.clone(), wrapped.clone(), elsewhere.clone()]);
    let network = landfall_solana::network(Chain::SolanaMainnet).unwrap();
    let mut line = Line::of(network, TestStore::fresh(Engine::Sqlite).await, blocks, 1).await;
    line.catch_up().await;

    let fake = |mint, why: &str| (asset(mint), Verdict::UnlistedToken, why.to_owned());
    let token = &line.source;
    assert_eq!(of(token, &line, &spam, 0x21).await, fake(Mint::Spam, "its token is not listed"));
    assert_eq!(of(token, &line, &wrapped, 0x21).await, fake(Mint::Wrapped, "its token is not listed"));
    let another = "its token is listed under another program";
    assert_eq!(of(token, &line, &elsewhere, 0x21).await, fake(Mint::Usdc, another));
    assert_eq!(line.amounts().await, []);
    // Of what anybody can make any amount of, no books are kept; what may be somebody's mistake stands in them.
    let kept: Vec<_> = line.inbox(false).await.into_iter().map(|one| (one.asset, one.reason)).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    for mint in [Mint::Wrapped, Mint::Usdc] {
        assert!(kept.contains(&(asset(mint), "unlisted_token".to_owned())), "{kept:?}");
    }

    // Where wrapped SOL is SOL, the same is a payment of SOL.
    let options = Options { wrapped: Some(Wrapped::Native), ..Options::default() };
    let url = EndpointUrl::from(line.nodes[0].url().parse::<url::Url>().unwrap());
    let native = SolanaSource::at(&line.network, vec![url], &options).unwrap();
    let (asset, verdict, _) = of(&native, &line, &wrapped, 0x21).await;
    assert_eq!((asset, verdict), (AssetId::Native, Verdict::Pending));
}

#[test]
fn who_asks_about_wrapped_sol_is_reported_how_it_is_credited() {
    let chain = Chain::SolanaMainnet;
    let note =
        "wrapped SOL: list its mint in chains.SOLANA_MAINNET.assets, or set chains.SOLANA_MAINNET.wrapped = \"native\"";
    assert_eq!(landfall::app::note_on(chain, &asset(Mint::Wrapped)).as_deref(), Some(note));
    for other in [asset(Mint::Usdc), asset(Mint::Spam), AssetId::Native] {
        assert_eq!(landfall::app::note_on(chain, &other), None);
    }
}
