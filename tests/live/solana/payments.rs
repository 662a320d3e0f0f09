//! The payments of `credits`: every way to pay on Solana, and to seem to pay, that a real program can show.
//!
//! Played once for all tests of this binary, each transaction for itself, followed by two watchers at once, one on
//! SQLite and one on PostgreSQL, to the end: all final, all settled. What they then report, what the source explains,
//! and by how much the cluster's own accounts grew meanwhile is kept. A deposit of a transaction that no test knows
//! fails them all.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use landfall::deposit::Deposit;
use landfall_chain::{Address, Asset, AssetId, Block, BlockSource, Legs, Network, Read, Rejected};
use landfall_solana::network;
use serde_json::json;
use solana_sdk::instruction::Instruction;
use solana_sdk::message::v1::{Message as MessageV1, TransactionConfig};
use solana_sdk::message::{AddressLookupTableAccount, Message, VersionedMessage, v0};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signer};

use crate::solana::cluster::{Cluster, Landed};
use crate::solana::follower::{CHAIN, Followed, source_of_version};
use crate::solana::programs::{self as call, Token};
use crate::stage::Engine;

/// For each signature.
pub(crate) const FEE: u64 = 5_000;
const DECIMALS: u8 = 6;
/// One in a hundred stays behind.
const FEE_BASIS_POINTS: u16 = 100;
/// What the payer has of each token.
const MINTED: u64 = 1_000_000_000;
const UNITS: u32 = 200_000;
const LOADED_BYTES: u32 = 1 << 20;

/// What became of the payments.
pub(crate) struct Played {
    /// How many slots there were from the first payment to the last, and how many of them hold no block.
    pub(crate) slots: usize,
    pub(crate) skipped: usize,
    /// What the cluster asks for an account without data, and for one of a token.
    pub(crate) rents: [u64; 2],
    pub(crate) reported: BTreeMap<&'static str, Reported>,
    /// How often each deposit became PENDING and CONFIRMED, on both engines.
    pub(crate) events: Vec<[u32; 2]>,
    /// The block of the transaction of version 1, asked for up to version 0 and up to the usual one.
    pub(crate) at_versions: [Block; 2],
    /// What each of our accounts holds at the end, as the cluster keeps it: by who and asset.
    pub(crate) holdings: BTreeMap<String, u64>,
}

/// What is reported of one transaction.
pub(crate) struct Reported {
    pub(crate) deposits: Vec<Deposit>,
    /// Who, verdict, base units and asset of each leg that is no deposit.
    pub(crate) verdicts: Vec<String>,
    /// By how much accounts of ours changed, as the cluster keeps them: by who and asset.
    pub(crate) grew: BTreeMap<String, i128>,
    /// The accounts that the message itself names.
    pub(crate) keys: Vec<Pubkey>,
    /// Who paid the fee, and how much.
    pub(crate) fee: (&'static str, u64),
    pub(crate) failed: bool,
}

/// The payments, played now or before.
pub(crate) fn played() -> &'static Played {
    static PLAYED: OnceLock<Option<Played>> = OnceLock::new();
    // On a thread of its own: a test may have a runtime already, and none outlives its test.
    let play = || tokio::runtime::Runtime::new().unwrap().block_on(play());
    let played = PLAYED.get_or_init(|| std::thread::spawn(play).join().ok());
    played.as_ref().expect("the payments were played; if not, standard error says above why")
}

/// What is reported of the transaction that was sent under this name.
pub(crate) fn reported(name: &str) -> &'static Reported {
    played().reported.get(name).unwrap_or_else(|| panic!("no transaction was sent as {name:?}"))
}

impl Reported {
    /// Account, base units and symbol of each deposit, in alphabetical order.
    pub(crate) fn credits(&self) -> Vec<String> {
        let mut credits: Vec<String> =
            self.deposits.iter().map(|d| format!("{} {} {}", d.account_id, d.amount, d.symbol)).collect();
        credits.sort_unstable();
        credits
    }
}

async fn play() -> Played {
    let folder = tempfile::tempdir().unwrap();
    let mut play = Play::set(Cluster::start(folder.path()).await).await;
    play.pay_sol().await;
    play.pay_tokens().await;
    play.pay_with_extensions().await;
    play.seem_to_pay().await;
    play.wrap_and_close().await;
    play.fail().await;
    play.in_other_versions().await;
    play.end().await
}

/// The cast, and what was sent so far.
struct Play {
    cluster: Cluster,
    network: Network,
    followers: [Followed; 2],
    payer: Keypair,
    /// Ours, and signs.
    bob: Keypair,
    /// Whom we watch.
    people: [(&'static str, Pubkey); 4],
    /// By their symbols; those that are listed first.
    tokens: [(&'static str, Token); 4],
    sent: Vec<(&'static str, Landed, Reported)>,
}

impl Play {
    /// Makes the tokens, and some of the accounts; the watchers stand at the tip.
    async fn set(cluster: Cluster) -> Self {
        let payer = cluster.payer.insecure_clone();
        let mints = [(); 4].map(|()| Keypair::new());
        let token = |index: usize, program| Token { mint: mints[index].pubkey(), program, decimals: DECIMALS };
        let tokens = [
            ("TOK", token(0, call::TOKEN)),
            ("FEE", token(1, call::TOKEN_2022)),
            ("PERM", token(2, call::TOKEN_2022)),
            ("FAKE", token(3, call::TOKEN)),
        ];
        let mut network = network(CHAIN).unwrap();
        for (symbol, token) in &tokens[..3] {
            let id = AssetId::Token(Address::Solana(token.mint.to_bytes()));
            network.assets.push(Asset {
                id,
                symbol: (*symbol).to_owned(),
                decimals: DECIMALS,
                from_block: 0,
                route: None,
            });
        }
        let bob = Keypair::new();
        let [alice, carol, dave] = [(); 3].map(|()| Keypair::new().pubkey());
        let people = [("alice", alice), ("bob", bob.pubkey()), ("carol", carol), ("dave", dave)];
        let followers = [
            Followed::start(Engine::Sqlite, &cluster, &network, &people).await,
            Followed::start(Engine::Postgres, &cluster, &network, &people).await,
        ];
        let mut play = Play { cluster, network, followers, payer, bob, people, tokens, sent: Vec::new() };
        play.make_tokens(&mints).await;
        play
    }

    async fn make_tokens(&mut self, mints: &[Keypair; 4]) {
        let payer = self.payer.pubkey();
        let bytes = [call::MINT_BYTES, call::FEE_MINT_BYTES, call::DELEGATE_MINT_BYTES, call::MINT_BYTES];
        for (index, bytes) in bytes.into_iter().enumerate() {
            let (name, token) = self.tokens[index];
            let rent = self.cluster.rent(bytes).await;
            let mut calls = vec![call::create_account(&payer, &token.mint, rent, bytes, &token.program)];
            match name {
                "FEE" => calls.push(token.initialize_fee(&payer, FEE_BASIS_POINTS)),
                "PERM" => calls.push(token.initialize_permanent_delegate(&payer)),
                _ => {}
            }
            calls.extend([token.initialize_mint(&payer), token.make_ata(&payer, &payer)]);
            calls.push(token.mint_to(&token.ata(&payer), &payer, MINTED));
            // The owner of an account that is there need not be named to pay into it.
            calls.extend([self.alice(), self.bob.pubkey()].map(|owner| token.make_ata(&payer, &owner)));
            self.pay(name, &calls, &[&mints[index]]).await;
        }
    }

    /// Rows S6, S9, S10 and what is plain.
    async fn pay_sol(&mut self) {
        let (payer, bob, alice) = (self.payer.pubkey(), self.bob.insecure_clone(), self.alice());
        let rent = self.cluster.rent(0).await;
        let pay = |to: &Pubkey, lamports| call::transfer(&payer, to, lamports);
        let back = |lamports| call::transfer(&bob.pubkey(), &payer, lamports);
        self.pay("SOL", &[pay(&alice, 1_250_000_000)], &[]).await;
        self.pay("SOL with a memo", &[pay(&alice, 11_000_000), call::memo("invoice 7")], &[]).await;
        self.pay("SOL twice", &[pay(&alice, 6_000_000), pay(&alice, 6_000_000)], &[]).await;
        self.pay("SOL for Bob", &[pay(&bob.pubkey(), 300_000_000)], &[]).await;
        self.pay("S6", &[pay(&bob.pubkey(), 10_000_000), pay(&bob.pubkey(), 10_000_000), back(5_000_000)], &[&bob])
            .await;
        self.pay("S6 nothing", &[pay(&bob.pubkey(), 10_000_000), back(10_000_000)], &[&bob]).await;
        self.pay("ours to ours", &[call::transfer(&bob.pubkey(), &alice, 12_000_000)], &[&bob]).await;
        let payer_key = self.payer.insecure_clone();
        let message = self.legacy(&[pay(&bob.pubkey(), 30_000_000)], &bob.pubkey()).await;
        self.send("S9", message, &[&bob, &payer_key], ("bob", 2 * FEE)).await;
        self.pay("S10 enough", &[pay(&self.carol(), rent)], &[]).await;
    }

    /// Rows S1, S2, S3 and tokens of the first program.
    async fn pay_tokens(&mut self) {
        let (payer, bob, alice, carol) = (self.payer.pubkey(), self.bob.insecure_clone(), self.alice(), self.carol());
        let (token, source) = (self.token("TOK"), self.token("TOK").ata(&payer));
        let pay = |to: &Pubkey, amount| token.transfer(&source, &token.ata(to), &payer, amount);
        self.pay("S1", &[pay(&alice, 1_000_000)], &[]).await;
        self.pay("new ATA", &[token.make_ata(&payer, &carol), pay(&carol, 2_000_000)], &[]).await;
        self.pay("minted", &[token.mint_to(&token.ata(&alice), &payer, 7)], &[]).await;
        self.pay("tokens for Bob", &[pay(&bob.pubkey(), 40_000_000)], &[]).await;
        let back = token.transfer(&token.ata(&bob.pubkey()), &source, &bob.pubkey(), 5);
        self.pay("S6 tokens", &[pay(&bob.pubkey(), 10), pay(&bob.pubkey(), 10), back], &[&bob]).await;
        self.pay("both", &[pay(&alice, 21), call::transfer(&payer, &alice, 22)], &[]).await;

        let (stray, calls) = self.new_account(&token, &alice).await;
        self.pay("an account for Alice", &calls, &[&stray]).await;
        self.pay("S2", &[token.transfer(&source, &stray.pubkey(), &payer, 3_000_000)], &[]).await;
        let (handed, mut calls) = self.new_account(&token, &payer).await;
        calls.push(token.transfer(&source, &handed.pubkey(), &payer, 9_000_000));
        self.pay("a full account", &calls, &[&handed]).await;
        self.pay("S3", &[token.hand_over(&handed.pubkey(), &payer, &carol)], &[]).await;
    }

    /// Rows S5 and S12: Token-2022.
    async fn pay_with_extensions(&mut self) {
        let (payer, alice, carol) = (self.payer.pubkey(), self.alice(), self.carol());
        let (fee, perm) = (self.token("FEE"), self.token("PERM"));
        let pay =
            |token: &Token, to: &Pubkey, amount| token.transfer(&token.ata(&payer), &token.ata(to), &payer, amount);
        self.pay("S5", &[pay(&fee, &alice, 10_000_000)], &[]).await;
        self.pay("S5 new ATA", &[fee.make_ata(&payer, &carol), pay(&fee, &carol, 100)], &[]).await;
        self.pay("S12", &[pay(&perm, &alice, 5_000_000)], &[]).await;
        let clawed_back = perm.transfer(&perm.ata(&alice), &perm.ata(&payer), &payer, 2_000_000);
        self.pay("S12 taken back", &[clawed_back], &[]).await;
    }

    async fn seem_to_pay(&mut self) {
        let (payer, alice) = (self.payer.pubkey(), self.alice());
        let fake = self.token("FAKE");
        self.pay("fake", &[fake.transfer(&fake.ata(&payer), &fake.ata(&alice), &payer, 77)], &[]).await;
    }

    /// Rows S4 and S7, and what comes back.
    async fn wrap_and_close(&mut self) {
        let (payer, bob, alice) = (self.payer.pubkey(), self.bob.insecure_clone(), self.alice());
        let (token, wrapped) =
            (self.token("TOK"), Token { mint: call::WRAPPED_SOL, program: call::TOKEN, decimals: 9 });
        let wrap = |from: &Pubkey, to: &Pubkey, lamports| {
            let account = wrapped.ata(to);
            [call::transfer(from, &account, lamports), wrapped.sync_native(&account)]
        };
        let (empty, calls) = self.new_account(&token, &payer).await;
        self.pay("an empty account", &calls, &[&empty]).await;
        self.pay("S4", &[token.close(&empty.pubkey(), &alice, &payer)], &[]).await;

        let [send, sync] = wrap(&payer, &alice, 70_000_000);
        self.pay("S7", &[wrapped.make_ata(&payer, &alice), send, sync], &[]).await;
        let [send, sync] = wrap(&bob.pubkey(), &bob.pubkey(), 20_000_000);
        self.pay("S7 own", &[wrapped.make_ata(&bob.pubkey(), &bob.pubkey()), send, sync], &[&bob]).await;
        let close = wrapped.close(&wrapped.ata(&bob.pubkey()), &bob.pubkey(), &bob.pubkey());
        self.pay("S7 own back", &[close], &[&bob]).await;

        let account = token.ata(&bob.pubkey());
        let all = self.cluster.tokens(&account).await;
        let move_all = token.transfer(&account, &token.ata(&alice), &bob.pubkey(), all);
        self.pay("closed", &[move_all, token.close(&account, &bob.pubkey(), &bob.pubkey())], &[&bob]).await;
    }

    /// Rows S8 and S10: what fails moves nothing.
    async fn fail(&mut self) {
        let (payer, alice, dave) = (self.payer.pubkey(), self.alice(), self.dave());
        let (token, rent) = (self.token("TOK"), self.cluster.rent(0).await);
        let too_much = call::transfer(&payer, &alice, u64::MAX / 2);
        self.pay("S8", &[call::transfer(&payer, &alice, 8_000_000), too_much.clone()], &[]).await;
        let tokens = token.transfer(&token.ata(&payer), &token.ata(&alice), &payer, 8);
        self.pay("S8 tokens", &[tokens, too_much], &[]).await;
        self.pay("S10", &[call::transfer(&payer, &dave, rent - 1)], &[]).await;
    }

    /// Row S11: a lookup table, and version 1.
    async fn in_other_versions(&mut self) {
        let (payer, alice, token) = (self.payer.pubkey(), self.alice(), self.token("TOK"));
        let addresses = vec![alice, token.ata(&alice), token.ata(&payer)];
        let slot = self.cluster.slot("finalized").await;
        let (key, make) = call::create_lookup_table(&payer, slot);
        self.pay("a table", &[make, call::extend_lookup_table(&key, &payer, &addresses)], &[]).await;
        // What stands in a table counts from the next slot on.
        self.pay("a slot later", &[call::memo("later")], &[]).await;
        let table = AddressLookupTableAccount { key, addresses };
        let pay = |lamports, amount| {
            let tokens = token.transfer(&token.ata(&payer), &token.ata(&alice), &payer, amount);
            [call::transfer(&payer, &alice, lamports), tokens]
        };
        let blockhash = self.cluster.blockhash().await;
        let message = v0::Message::try_compile(&payer, &pay(110_000_000, 111), &[table], blockhash).unwrap();
        self.send_from_payer("S11", VersionedMessage::V0(message)).await;

        let config = TransactionConfig::empty()
            .with_compute_unit_limit(UNITS)
            .with_loaded_accounts_data_size_limit(LOADED_BYTES);
        let blockhash = self.cluster.blockhash().await;
        let message = MessageV1::try_compile_with_config(&payer, &pay(112_000_000, 113), blockhash, config).unwrap();
        self.send_from_payer("v1", VersionedMessage::V1(message)).await;
    }

    /// A new account of a token, that is not the associated one, and what makes it.
    async fn new_account(&self, token: &Token, owner: &Pubkey) -> (Keypair, Vec<Instruction>) {
        let (key, bytes) = (Keypair::new(), call::TOKEN_ACCOUNT_BYTES);
        let rent = self.cluster.rent(bytes).await;
        let make = call::create_account(&self.payer.pubkey(), &key.pubkey(), rent, bytes, &token.program);
        let initialize = token.initialize_account(&key.pubkey(), owner);
        (key, vec![make, initialize])
    }

    /// Sends what the payer pays the fee for.
    async fn pay(&mut self, name: &'static str, calls: &[Instruction], signers: &[&Keypair]) {
        let payer = self.payer.insecure_clone();
        let message = self.legacy(calls, &payer.pubkey()).await;
        let fee = FEE * u64::from(message.header().num_required_signatures);
        let signers: Vec<&Keypair> = signers.iter().copied().chain([&payer]).collect();
        self.send(name, message, &signers, ("payer", fee)).await;
    }

    async fn send_from_payer(&mut self, name: &'static str, message: VersionedMessage) {
        let payer = self.payer.insecure_clone();
        self.send(name, message, &[&payer], ("payer", FEE)).await;
    }

    async fn legacy(&self, calls: &[Instruction], payer: &Pubkey) -> VersionedMessage {
        let blockhash = self.cluster.blockhash().await;
        VersionedMessage::Legacy(Message::new_with_blockhash(calls, Some(payer), &blockhash))
    }

    /// Sends, and has both watchers read the block that it landed in.
    async fn send(
        &mut self,
        name: &'static str,
        message: VersionedMessage,
        signers: &[&Keypair],
        fee: (&'static str, u64),
    ) {
        let keys = message.static_account_keys().to_vec();
        let before = self.holdings().await;
        let landed = self.cluster.send(message, signers).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let grew = self.holdings().await.into_iter().filter_map(|(whose, after)| {
            let change = i128::from(after) - i128::from(before[&whose]);
            (change != 0).then_some((whose, change))
        });
        let (grew, failed) = (grew.collect(), landed.failed);
        let reported = Reported { deposits: Vec::new(), verdicts: Vec::new(), grew, keys, fee, failed };
        self.sent.push((name, landed, reported));
        for follower in &mut self.followers {
            follower.follow(landed.slot).await;
        }
    }

    /// What the cluster's accounts hold of what is listed: by who and asset.
    async fn holdings(&self) -> BTreeMap<String, u64> {
        let mut holdings = BTreeMap::new();
        for (who, owner) in &self.people {
            holdings.insert(format!("{who} SOL"), self.cluster.lamports(owner).await);
            for (symbol, token) in &self.tokens[..3] {
                holdings.insert(format!("{who} {symbol}"), self.cluster.tokens(&token.ata(owner)).await);
            }
        }
        holdings
    }

    /// Waits until everything is settled, and reports it.
    async fn end(mut self) -> Played {
        let slots = self.sent.iter().map(|(_, landed, _)| landed.slot);
        let (first, last) = (slots.clone().min().unwrap(), slots.max().unwrap());
        for follower in &mut self.followers {
            follower.settle(last).await;
        }
        let [sqlite, postgres] = &self.followers;
        let deposits = sqlite.deposits().await;
        let mut events = Vec::new();
        for deposit in &deposits {
            events.extend([sqlite.reported(deposit).await, postgres.reported(deposit).await]);
        }
        let ids = |deposits: &[Deposit]| deposits.iter().map(|d| (d.id, d.status, d.amount)).collect::<Vec<_>>();
        assert_eq!(ids(&deposits), ids(&postgres.deposits().await), "both engines tell the same");
        let slot = self.sent.iter().find(|(name, ..)| *name == "v1").unwrap().1.slot;
        let at_versions = [self.block(Some(0), slot).await, self.block(None, slot).await];
        let mut reported = BTreeMap::new();
        for (name, landed, mut of) in std::mem::take(&mut self.sent) {
            of.deposits = deposits.iter().filter(|deposit| deposit.tx.id == landed.tx).cloned().collect();
            of.verdicts = self.verdicts(&landed).await;
            assert!(reported.insert(name, of).is_none(), "two are called {name}");
        }
        let known: usize = reported.values().map(|reported| reported.deposits.len()).sum();
        assert_eq!(known, deposits.len(), "a deposit is of no transaction that was sent: {deposits:#?}");
        let rents = [self.cluster.rent(0).await, self.cluster.rent(call::TOKEN_ACCOUNT_BYTES).await];
        let holdings = self.holdings().await;
        let (slots, skipped) = self.slots(first, last).await;
        Played { slots, skipped, rents, reported, events, at_versions, holdings }
    }

    /// How many slots there are, and how many of them hold no block.
    async fn slots(&self, first: u64, last: u64) -> (usize, usize) {
        let how = json!([first, last, { "commitment": "confirmed" }]);
        let blocks = self.cluster.rpc("getBlocks", how).await.as_array().unwrap().len();
        let slots = usize::try_from(last - first).unwrap() + 1;
        (slots, slots - blocks)
    }

    /// What the source explains of a transaction.
    async fn verdicts(&self, landed: &Landed) -> Vec<String> {
        let block = self.block(None, landed.slot).await;
        let rejected =
            block.rejected.iter().chain(&block.unattributed).filter(|rejected| rejected.transfer.tx.id == landed.tx);
        let verdict = |rejected: &Rejected| {
            let transfer = &rejected.transfer;
            let (who, asset) = (self.who(&transfer.recipient), self.symbol(&transfer.asset));
            format!("{who} {} {} {asset}", rejected.verdict, transfer.amount)
        };
        let mut verdicts: Vec<String> = rejected.map(verdict).collect();
        verdicts.sort_unstable();
        verdicts
    }

    async fn block(&self, version: Option<u8>, slot: u64) -> Block {
        let read = Read { legs: Legs::Explained, ..Read::FULL };
        let source = source_of_version(version, &self.cluster, &self.network);
        source.blocks(slot..=slot, read).await.unwrap().remove(0)
    }

    fn who(&self, address: &Address) -> &'static str {
        let payer = [("payer", self.payer.pubkey())];
        let all = self.people.iter().chain(&payer);
        all.into_iter().find(|(_, key)| Address::Solana(key.to_bytes()) == *address).map_or("another", |(who, _)| who)
    }

    fn symbol(&self, asset: &AssetId) -> &'static str {
        let is = |mint: &Pubkey| *asset == AssetId::Token(Address::Solana(mint.to_bytes()));
        match self.tokens.iter().find(|(_, token)| is(&token.mint)) {
            Some((symbol, _)) => symbol,
            None if is(&call::WRAPPED_SOL) => "wSOL",
            None => "SOL",
        }
    }

    fn token(&self, symbol: &str) -> Token {
        self.tokens.iter().find(|(name, _)| *name == symbol).unwrap().1
    }

    fn alice(&self) -> Pubkey {
        self.people[0].1
    }

    fn carol(&self) -> Pubkey {
        self.people[2].1
    }

    fn dave(&self) -> Pubkey {
        self.people[3].1
    }
}
