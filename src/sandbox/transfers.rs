//! The second half of the play: money out. A sponsor pays the gas.
//!
//! One transfer is displaced by a reorg and carried again. Another is carried by nobody, and is dropped with a proof
//! that is compared with the node's own state.

use anyhow::{Context, bail, ensure};
use landfall_chain::Chain;
use serde_json::{Value, json};

use crate::random;
use crate::sandbox::stage::{Mining, Person, Stage};
use crate::sandbox::{cluster, screen::short, sponsors};
use crate::store::{attempts, transfers};
use crate::transfer::TransferId;

/// How far the node's clock is put forward, so that a window of 300 seconds is over.
const FORWARD_SECS: u64 = 330;

/// A payment that somebody asks for.
#[derive(Clone, Copy, Debug)]
struct Asked<'h> {
    from: Person<'h>,
    to: Person<'h>,
    chain: Chain,
    is_native: bool,
    amount: &'static str,
}

impl Stage<'_> {
    /// All of them; what needs the node's clock to be put forward comes last.
    pub(super) async fn transfers(&mut self) -> anyhow::Result<()> {
        let (from, to, chain) = (self.alice, self.bob, self.chain);
        let usdc = |amount| Asked { from, to, chain, is_native: false, amount };
        for asked in [usdc("12.5"), Asked { is_native: true, amount: "0.4", ..usdc("") }] {
            let id = self.ask(asked).await?;
            self.until_reported(Mining::On, &id, "INCLUDED").await?;
        }
        self.displaced(usdc("7.25")).await?;
        self.transfers_on_solana().await?;
        self.dropped(usdc("3")).await
    }

    /// Asks for a transfer until what its payer has is known; its id.
    async fn ask(&mut self, asked: Asked<'_>) -> anyhow::Result<String> {
        let Asked { from, to, chain, is_native, amount } = asked;
        let symbol = match &self.cluster {
            Some(cluster) if chain == cluster::CHAIN && is_native => cluster.native.symbol.clone(),
            _ if is_native => self.native.symbol.clone(),
            _ => self.usdc.symbol.clone(),
        };
        self.screen.transfer("asked", &format!("{} sends {amount} {symbol} to {}", from.name, to.name));
        let body = json!({
            "request_id": uuid::Builder::from_custom_bytes(random::bytes()).into_uuid().to_string(),
            "account_id": from.account_id,
            "currency_symbol": symbol,
            "amount": amount,
            "address_destination": { "address": to.address.to_string(), "chain": chain.name() },
        });
        loop {
            let (status, answer) = self.house.api.post("/v2/crypto/transfers", &body).await?;
            let code = answer["code"].as_str().unwrap_or_default();
            match (status, code) {
                (201, _) => return Ok(answer["id"].as_str().context("a transfer has an id")?.to_owned()),
                // What was paid to her is not read yet, or not final.
                (503, "BALANCE_UNKNOWN") | (422, "INSUFFICIENT_FUNDS") => {
                    self.turn(Mining::On, &format!("the balance of {}", from.name)).await?;
                }
                _ => bail!("the transfer was refused, {status}: {answer}"),
            }
        }
    }

    /// A reorg takes the payment back; the same bytes are sent again.
    async fn displaced(&mut self, asked: Asked<'_>) -> anyhow::Result<()> {
        let id = self.ask(asked).await?;
        while self.house.anvil.pooled().await?.is_zero() {
            self.turn(Mining::Off, &format!("the transaction that carries transfer {id}")).await?;
        }
        self.next_block().await?;
        self.until_reported(Mining::Off, &id, "INCLUDED").await?;
        self.reorganise(&format!("transfer {}", short(&id))).await?;
        self.until_reported(Mining::Off, &id, "DISPLACED").await?;
        self.until_reported(Mining::On, &id, "CONFIRMED").await
    }

    /// What carol has is all on Solana.
    async fn transfers_on_solana(&mut self) -> anyhow::Result<()> {
        let Some(cluster) = self.cluster.clone() else { return Ok(()) };
        let (from, chain) = (cluster.carol, cluster::CHAIN);
        // alice has an account of the token already: its rent would be no cost of the transaction.
        let to_bob = Asked { from, to: cluster.bob, chain, is_native: true, amount: "0.2" };
        let to_alice = Asked { from, to: cluster.alice, chain, is_native: false, amount: "12.5" };
        for asked in [to_bob, to_alice] {
            let id = self.ask(asked).await?;
            self.asked_on_solana += 1;
            self.until_reported(Mining::On, &id, "INCLUDED").await?;
        }
        Ok(())
    }

    /// Nobody carries it until its window is over by the chain's own time.
    async fn dropped(&mut self, asked: Asked<'_>) -> anyhow::Result<()> {
        self.pause_sponsors(true).await?;
        let id = self.ask(asked).await?;
        let of: TransferId = id.parse().map_err(anyhow::Error::msg)?;
        let is_signed = async |stage: &Self| -> anyhow::Result<bool> {
            let intents = attempts::intents_of(&mut stage.house.db.read().await?, of).await?;
            Ok(intents.iter().any(|intent| intent.signature.is_some()))
        };
        while !is_signed(self).await? {
            self.turn(Mining::On, &format!("the signature of transfer {id}")).await?;
        }
        let clock =
            format!("the sponsor is paused, so nobody carries it; the node's clock goes {FORWARD_SECS} s ahead");
        self.screen.transfer("clock", &clock);
        self.house.anvil.put_forward(FORWARD_SECS).await?;
        self.until_reported(Mining::On, &id, "DROPPED").await?;
        self.prove(of).await?;
        self.pause_sponsors(false).await
    }

    /// Compares the proof that is on record with the node: the block is final, its time not before the deadline, and the key
    /// is unused in its state.
    async fn prove(&mut self, id: TransferId) -> anyhow::Result<()> {
        let mut reader = self.house.db.read().await?;
        let dropped = transfers::by_id(&mut reader, id).await?.context("the transfer is on record")?;
        let change = transfers::history(&mut reader, id).await?.pop().context("it has a history")?;
        drop(reader);
        let block = change.block.context("it was dropped without a block")?;
        let anvil = self.house.anvil;
        let (time, finalized) = (anvil.time_of(&block).await?, anvil.block("finalized").await?);
        let deadline = dropped.deadline.0 / 1_000_000;
        let is_over = i64::try_from(time).is_ok_and(|time| time >= deadline);
        let is_final = anvil.block(&format!("{:#x}", block.number)).await? == block && block.number <= finalized.number;
        let is_used = anvil.is_used(&self.token, &dropped.source, &dropped.intent_key.0, &block).await?;
        ensure!(is_over && is_final && !is_used, "the proof of {id} does not hold: {block}, {time}, used: {is_used}");
        self.proved += 1;
        let (number, hash) = (block.number, short(&block.hash.to_string()));
        let text = format!(
            "block {number} ({hash}) is final, its time {time} is behind the deadline {deadline}, and the token says that the \
             key is unused"
        );
        self.screen.transfer("proof", &text);
        Ok(())
    }

    async fn pause_sponsors(&self, is_paused: bool) -> anyhow::Result<()> {
        for sponsor in self.sponsored.iter().filter(|sponsor| sponsor.chain == self.chain) {
            sponsor.pause(self.house.db, is_paused).await?;
        }
        Ok(())
    }

    /// What it cost, and what of it the credit paid.
    pub(super) async fn show_credit(&self) -> anyhow::Result<()> {
        let credit: Value = self.house.api.get("/v2/gas-credit").await?;
        let [granted, used, remaining, billed] = ["granted_usd", "used_usd", "remaining_usd", "billable_usd"]
            .map(|name| credit[name].as_str().unwrap_or("?"));
        self.screen.transfer(
            "credit",
            &format!("{used} USD of {granted} paid for gas, {remaining} left, {billed} to be billed"),
        );
        Ok(())
    }

    /// Sets what native currencies cost, so that what gas costs can be charged.
    pub(super) async fn set_prices(&self, networks: &[landfall_chain::Network]) -> anyhow::Result<()> {
        for (symbol, usd) in [("ETH", "3000"), ("SOL", "150")] {
            if networks.iter().any(|network| network.assets.iter().any(|asset| asset.symbol == symbol)) {
                sponsors::operator().set_price(self.house.db, symbol, usd.parse()?, networks).await?;
            }
        }
        Ok(())
    }
}
