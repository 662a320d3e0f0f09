//! The play: everything that a client of Landfall will meet one day, in half a minute.
//!
//! Each act sends real transactions and waits for the events that they must cause. A wait that does not end names what
//! it waited for.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use crate::sandbox::books::Books;
use crate::sandbox::cluster::{Pay, Who};
use crate::sandbox::screen::short;
use crate::sandbox::stage::{Mining, Payment, Stage};

/// How many blocks are mined after the books balance: a deposit that is credited too often may come late.
const BLOCKS_AFTER: u64 = 3;

/// How often the books are made: each time several pages of the API are asked for, which has a limit.
const BOOKS_EVERY: Duration = Duration::from_secs(1);

/// The payments on Solana. The second payment of USDC to a person goes to the token account of the first.
const SOLANA: [Pay; 6] = [
    Pay { to: Who::Alice, amount: "0.75", is_native: true },
    Pay { to: Who::Alice, amount: "200", is_native: false },
    Pay { to: Who::Alice, amount: "2.5", is_native: false },
    Pay { to: Who::Bob, amount: "0.25", is_native: true },
    Pay { to: Who::Carol, amount: "1", is_native: true },
    Pay { to: Who::Carol, amount: "50", is_native: false },
];

impl Stage<'_> {
    /// All acts; the books at their end.
    pub(super) async fn play(&mut self) -> anyhow::Result<Books> {
        let (alice, bob) = (self.alice, self.bob);
        self.deposit(&self.native(alice, "1.25")?).await?;
        self.deposit(&self.usdc(alice, "100")?).await?;
        self.deposit(&self.usdc_to_each(&[(alice, "5"), (alice, "5"), (bob, "7")])?).await?;
        self.deposit(&self.native(bob, "0.5")?).await?;
        self.orphaned_and_mined_again(&self.usdc(alice, "20")?).await?;
        self.orphaned_and_replaced(&self.usdc(bob, "30")?, &self.usdc(alice, "31.5")?).await?;
        self.deposits_on_solana().await?;
        self.transfers().await?;
        let books = self.settle().await?;
        self.show_credit().await?;
        Ok(books)
    }

    async fn deposit(&mut self, payment: &Payment) -> anyhow::Result<()> {
        let nonce = self.next_nonce();
        let tx = self.pay(payment, nonce).await?;
        self.until(Mining::On, &tx, "PENDING", payment.legs).await
    }

    /// Payments to the same people on the other family of chains, if there is a cluster.
    async fn deposits_on_solana(&mut self) -> anyhow::Result<()> {
        let Some(cluster) = self.cluster.clone() else { return Ok(()) };
        for payment in SOLANA {
            let (what, tx) = cluster.pay(&payment).await?;
            self.screen.sent(&what, &tx);
            self.until(Mining::On, &tx, "PENDING", 1).await?;
        }
        Ok(())
    }

    /// The same transaction in another block is the same deposit.
    async fn orphaned_and_mined_again(&mut self, payment: &Payment) -> anyhow::Result<()> {
        let nonce = self.next_nonce();
        let orphan = self.orphan(payment, nonce).await?;
        let tx = self.pay(payment, nonce).await?;
        ensure!(tx == orphan, "the transaction that was sent again has another hash: {orphan}, then {tx}");
        self.until(Mining::On, &tx, "CONFIRMED", 1).await?;
        let [pending, confirmed] = ["PENDING", "CONFIRMED"].map(|status| self.deposits_of(&tx, status));
        ensure!(pending == confirmed, "the reorg gave {tx} another id: PENDING {pending:?}, CONFIRMED {confirmed:?}");
        Ok(())
    }

    /// Another transaction with the same nonce replaces it: the first can never be mined again.
    async fn orphaned_and_replaced(&mut self, payment: &Payment, other: &Payment) -> anyhow::Result<()> {
        let nonce = self.next_nonce();
        let orphan = self.orphan(payment, nonce).await?;
        let tx = self.pay(other, nonce).await?;
        self.until(Mining::On, &tx, "CONFIRMED", 1).await?;
        self.until(Mining::On, &orphan, "FAILED", 1).await
    }

    /// Pays, and reorganises the block away as soon as Landfall has reported the deposit; returns the transaction's
    /// hash.
    async fn orphan(&mut self, payment: &Payment, nonce: u64) -> anyhow::Result<String> {
        let tx = self.pay(payment, nonce).await?;
        self.until(Mining::Off, &tx, "PENDING", payment.legs).await?;
        self.reorganise(&short(&tx)).await?;
        Ok(tx)
    }

    /// Mines until the books balance, and a little longer. If the time is over first, the books show what is missing.
    async fn settle(&mut self) -> anyhow::Result<Books> {
        loop {
            let books = Books::of(&self.evidence().await?);
            if books.faults.is_empty() {
                break;
            }
            if self.is_late() {
                return Ok(books);
            }
            let asked_at = Instant::now();
            while asked_at.elapsed() < BOOKS_EVERY {
                self.pass_a_moment(Mining::On).await?;
            }
        }
        for _ in 0..BLOCKS_AFTER {
            self.next_block().await?;
            self.until_followed().await?;
        }
        self.show_arrivals();
        Ok(Books::of(&self.evidence().await?))
    }
}
