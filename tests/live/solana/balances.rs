//! What the API says that an owner has is what the cluster says: SOL, a token of each program, after deposits, and
//! after payments that Landfall had no part in.

use landfall::amount::to_decimal;
use landfall_chain::U256;
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signer};

use crate::balances::Client;
use crate::solana::programs::{self as call, MINT_BYTES, TOKEN, TOKEN_2022, Token};
use crate::solana::stage::{DECIMALS, Stage, listed};
use crate::stage::Engine;

/// What the cluster says that the owner has now, as lines of the API, in the order of the configuration.
async fn lines(stage: &Stage, owner: &Pubkey, tokens: &[(&str, &Token)]) -> Vec<[String; 3]> {
    let line = |symbol: &str, amount: u64, decimals| {
        let amount = to_decimal(U256::from(amount), decimals);
        [symbol.to_owned(), amount.clone(), amount]
    };
    let network = landfall_solana::network(crate::solana::follower::CHAIN).unwrap();
    let mut lines = Vec::new();
    for asset in &network.assets {
        // No mint of the network is on this cluster.
        let amount = if lines.is_empty() { stage.cluster.lamports(owner).await } else { 0 };
        lines.push(line(&asset.symbol, amount, asset.decimals));
    }
    for (symbol, token) in tokens {
        lines.push(line(symbol, stage.cluster.tokens(&token.ata(owner)).await, DECIMALS));
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_are_what_the_cluster_says_on_sqlite() {
    balances_are_what_the_cluster_says(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn balances_are_what_the_cluster_says_on_postgresql() {
    balances_are_what_the_cluster_says(Engine::Postgres).await;
}

async fn balances_are_what_the_cluster_says(engine: Engine) {
    let stage = Stage::new(engine).await;
    let old = stage.make_token(TOKEN, MINT_BYTES, |_, _| None).await;
    let new = stage.make_token(TOKEN_2022, MINT_BYTES, |_, _| None).await;
    let tokens = [("OLD", &old), ("NEW", &new)];
    let list = listed("OLD", &old, DECIMALS, "spl_token") + &listed("NEW", &new, DECIMALS, "token_2022");
    stage.configure(&[], 100, &list);
    let client = Client::new(&stage.ok(&["key", "create", "--name", "live"]), |listen| stage.listen(listen));
    let (alice, bob) = (Keypair::new(), Pubkey::new_unique());
    stage.watch("alice", &alice.pubkey());
    let service = stage.start();
    client.until("alice", &lines(&stage, &alice.pubkey(), &tokens).await).await;

    stage.pay_sol(&alice.pubkey(), 1_500_000_000).await;
    stage.pay(&old, &alice.pubkey(), 5_000_000).await;
    let last = stage.pay(&new, &alice.pubkey(), 7_000_000).await;
    stage.until_final(last.slot).await;
    let has = lines(&stage, &alice.pubkey(), &tokens).await;
    assert_eq!([&has[0][1], &has[has.len() - 2][1], &has[has.len() - 1][1]], ["1.5", "5", "7"]);
    let took = client.until("alice", &has).await;
    println!("{engine:?}: deposits are in the balance {} ms after their blocks are final", took.as_millis());

    // Somebody with her key pays: some SOL, some of one token, all of the other.
    stage.pay(&old, &bob, 1).await;
    stage.pay(&new, &bob, 1).await;
    let who = alice.pubkey();
    let pay = |token: &Token, amount| token.transfer(&token.ata(&who), &token.ata(&bob), &who, amount);
    let calls = [call::transfer(&who, &bob, 400_000_000), pay(&old, 2_000_000), pay(&new, 7_000_000)];
    let landed = stage.send(&calls, &[&alice]).await;
    stage.until_final(landed.slot).await;
    let has = lines(&stage, &who, &tokens).await;
    assert_eq!([&has[0][1], &has[has.len() - 2][1], &has[has.len() - 1][1]], ["1.1", "3", "0"]);
    let took = client.until("alice", &has).await;
    println!("{engine:?}: payments of hers are out of the balance {} ms after their block is final", took.as_millis());
    assert_eq!(service.stop().0, Some(0));
}
