//! The books of the sandbox: compares what the receiver got with what the chain reports, what the store holds and what
//! the API shows.
//!
//! The chain's balances are the judge. Every watched address began with nothing, so its balance is what it received
//! less what it sent. What sponsors spent must be in the gas ledger. Pure. Each difference is a fault with a message;
//! the last line of `sandbox --once` counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use landfall_chain::{Address, U256};

use crate::amount::{from_decimal, to_decimal};
use crate::event::DEPOSIT_EVENT;
use crate::receiver::Received;

/// How the types of a transfer's events begin.
const TRANSFER_EVENTS: &str = "transfer_";

/// What an address has of an asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Holding {
    /// Who has it.
    pub(super) name: &'static str,
    pub(super) address: Address,
    pub(super) symbol: String,
    pub(super) decimals: u8,
    pub(super) balance: U256,
}

/// What a sponsor spent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Spent {
    pub(super) symbol: String,
    pub(super) decimals: u8,
    /// By the chain's balance.
    pub(super) gone: U256,
    /// By the gas ledger.
    pub(super) booked: U256,
}

/// A deposit's id and status, or a transfer's.
pub(super) type Shown = BTreeSet<(String, String)>;

/// What the books are made from.
#[derive(Debug)]
pub(super) struct Evidence {
    /// The receiver's log, in the order of arrival, with repetitions.
    pub(super) received: Vec<Received>,
    pub(super) refused: u64,
    pub(super) holdings: Vec<Holding>,
    /// Events in the store that were not delivered.
    pub(super) undelivered: u64,
    /// Readings of addresses that the record did not explain.
    pub(super) unexplained: usize,
    pub(super) shown_by_api: Shown,
    pub(super) transfers_by_api: Shown,
    /// What the sponsors spent.
    pub(super) spent: Vec<Spent>,
    /// How many transfers are DROPPED with a proof that the node's own state bears.
    pub(super) proved: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Books {
    confirmed: usize,
    delivered: usize,
    lost: u64,
    duplicated: u64,
    /// Transfers.
    sent: usize,
    proved: usize,
    paid_twice: u64,
    is_uneven: bool,
    pub(super) faults: Vec<String>,
}

impl Books {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let reported = ClientView::of(&evidence.received);
        let mut books = Books {
            confirmed: reported.statuses.values().filter(|status| **status == "CONFIRMED").count(),
            delivered: reported.arrived,
            sent: reported.transfers.values().filter(|transfer| transfer.field("status") == "CONFIRMED").count(),
            proved: evidence.proved,
            ..Books::default()
        };
        books.compare_with_chain(&reported, &evidence.holdings);
        books.find_unfinished(&reported, evidence);
        books.find_repeated(&reported);
        books.find_unended(&reported, evidence);
        books.compare_ledger(&evidence.spent);
        books
    }

    /// What was paid out, beside what came in.
    pub(super) fn of_transfers(&self) -> String {
        let Books { sent, proved, paid_twice, is_uneven, .. } = self;
        let ledger = if *is_uneven { "ledger not even" } else { "ledger even to the wei" };
        format!("transfers: {sent} confirmed, {proved} dropped with proof, {paid_twice} paid twice, {ledger}")
    }

    fn compare_with_chain(&mut self, reported: &ClientView<'_>, holdings: &[Holding]) {
        let mut sums = reported.confirmed_amounts();
        let mut sent = reported.sent_amounts();
        for Holding { name, address, symbol, decimals, balance } in holdings {
            let place = (address.to_string(), symbol.clone());
            let amounts = sums.remove(&place).unwrap_or_default();
            let out = sent.remove(&place).unwrap_or_default();
            let [sum, gone] = [&amounts, &out].map(|amounts| sum_of(amounts, *decimals));
            let Some((sum, gone)) = sum.zip(gone) else {
                self.faults.push(format!("{name}: {symbol} amounts that are none: {amounts:?} {out:?}"));
                continue;
            };
            let left = sum.saturating_sub(gone);
            self.lost += u64::from(left < *balance);
            // Of whom nothing went out, too much was credited.
            let is_short = left > *balance || gone > sum;
            self.paid_twice += u64::from(is_short && !out.is_empty());
            self.duplicated += u64::from(is_short && out.is_empty());
            if left != *balance || gone > sum {
                let [sum, gone, balance] = [sum, gone, *balance].map(|amount| to_decimal(amount, *decimals));
                let out = if out.is_empty() { String::new() } else { format!(" and {gone} sent") };
                self.faults.push(format!("{name}: {sum} {symbol} is CONFIRMED{out}, the chain says {balance}"));
            }
        }
        for (address, symbol) in sent.keys() {
            self.paid_twice += 1;
            self.faults.push(format!("{symbol} is CONFIRMED as sent from {address}, which nobody has"));
        }
        for (address, symbol) in sums.keys() {
            self.duplicated += 1;
            self.faults.push(format!("{symbol} is CONFIRMED at {address}, which nobody paid"));
        }
    }

    fn find_unfinished(&mut self, reported: &ClientView<'_>, evidence: &Evidence) {
        let Evidence { refused, undelivered, unexplained, shown_by_api, .. } = evidence;
        if *undelivered > 0 {
            self.lost += undelivered;
            self.faults.push(format!("{undelivered} events are not delivered"));
        }
        if *unexplained > 0 {
            self.faults.push(format!("{unexplained} balances are not explained"));
        }
        if *refused > 0 {
            self.faults.push(format!("{refused} requests to the receiver were not signed or no envelope"));
        }
        for (id, _) in reported.statuses.iter().filter(|(_, status)| **status == "PENDING") {
            self.faults.push(format!("deposit {id} is still PENDING"));
        }
        let reported: Shown =
            reported.statuses.iter().map(|(id, status)| ((*id).to_owned(), (*status).to_owned())).collect();
        for (id, status) in reported.symmetric_difference(shown_by_api) {
            let by = if reported.contains(&(id.clone(), status.clone())) { "events only" } else { "the API only" };
            self.faults.push(format!("deposit {id} is {status} by {by}"));
        }
    }

    /// Transfers that have not ended, and those of which the API shows something else than the events.
    fn find_unended(&mut self, reported: &ClientView<'_>, evidence: &Evidence) {
        let Evidence { transfers_by_api, proved, .. } = evidence;
        let of = |transfer: &Received| (transfer.field("id").to_owned(), transfer.field("status").to_owned());
        let by_events: Shown = reported.transfers.values().map(|transfer| of(transfer)).collect();
        for (id, status) in by_events.symmetric_difference(transfers_by_api) {
            self.faults.push(format!("transfer {id} is {status} by one of events and API only"));
        }
        for (id, _) in by_events.iter().filter(|(_, status)| status == "SUBMITTED") {
            self.faults.push(format!("transfer {id} is still SUBMITTED"));
        }
        let dropped = by_events.iter().filter(|(_, status)| status == "DROPPED").count();
        if dropped != *proved {
            self.faults.push(format!("{dropped} transfers are DROPPED, and of {proved} the proof holds"));
        }
        if let Some((id, _)) = by_events.iter().find(|(_, status)| status == "FAILED") {
            self.faults.push(format!("transfer {id} is FAILED"));
        }
    }

    /// What sponsors spent, against what was booked.
    fn compare_ledger(&mut self, spent: &[Spent]) {
        for Spent { symbol, decimals, gone, booked } in spent.iter().filter(|spent| spent.gone != spent.booked) {
            self.is_uneven = true;
            let [gone, booked] = [gone, booked].map(|amount| to_decimal(*amount, *decimals));
            self.faults.push(format!("sponsors spent {gone} {symbol}, and {booked} is in the gas ledger"));
        }
    }

    /// The same change reported under two ids, and changes reported in a wrong order.
    fn find_repeated(&mut self, reported: &ClientView<'_>) {
        let mut seen = BTreeSet::new();
        let mut pending = BTreeSet::new();
        for received in &reported.first_arrivals {
            let (key, status) = (received.field("dedup_key"), received.field("status"));
            if !seen.insert((key, status)) {
                self.duplicated += 1;
                self.faults.push(format!("{key} is {status} under two event ids"));
            }
            if status == "PENDING" {
                pending.insert(key);
            } else if !pending.contains(key) {
                self.faults.push(format!("{key} is {status} before it is PENDING"));
            }
        }
    }
}

/// What a client knows from the events.
struct ClientView<'r> {
    /// How many events arrived, each counted once.
    arrived: usize,
    /// Each event of a deposit once, where it arrived first.
    first_arrivals: Vec<&'r Received>,
    /// The latest status of each deposit, by its id.
    statuses: BTreeMap<&'r str, &'r str>,
    /// The latest event of each transfer, by its id.
    transfers: BTreeMap<&'r str, &'r Received>,
}

impl<'r> ClientView<'r> {
    fn of(received: &'r [Received]) -> Self {
        let mut ids = BTreeSet::new();
        let mut first_arrivals: Vec<_> = received.iter().filter(|received| ids.insert(received.id.as_str())).collect();
        let is_transfer = |received: &&&Received| received.r#type.starts_with(TRANSFER_EVENTS);
        let transfers = first_arrivals.iter().filter(is_transfer).map(|received| (received.field("id"), *received));
        let transfers = transfers.collect();
        first_arrivals.retain(|received| received.r#type == DEPOSIT_EVENT);
        let statuses = first_arrivals.iter().map(|received| (received.field("id"), received.field("status"))).collect();
        ClientView { arrived: ids.len(), first_arrivals, statuses, transfers }
    }

    /// What was CONFIRMED at each address, by symbol. Each (dedup_key, status) counts once, as the interface asks of
    /// clients.
    fn confirmed_amounts(&self) -> BTreeMap<(String, String), Vec<&'r str>> {
        let mut counted = BTreeSet::new();
        let mut amounts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let confirmed = self.first_arrivals.iter().filter(|received| received.field("status") == "CONFIRMED");
        for received in confirmed.filter(|received| counted.insert(received.field("dedup_key"))) {
            let place = (received.field("account_address").to_owned(), received.field("currency_symbol").to_owned());
            amounts.entry(place).or_default().push(received.field("amount"));
        }
        amounts
    }
}

impl<'r> ClientView<'r> {
    /// What was CONFIRMED to be sent from each address, by symbol.
    fn sent_amounts(&self) -> BTreeMap<(String, String), Vec<&'r str>> {
        let mut amounts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for transfer in self.transfers.values().filter(|transfer| transfer.field("status") == "CONFIRMED") {
            let place = (transfer.field("source_address").to_owned(), transfer.field("currency_symbol").to_owned());
            amounts.entry(place).or_default().push(transfer.field("amount"));
        }
        amounts
    }
}

fn sum_of(amounts: &[&str], decimals: u8) -> Option<U256> {
    amounts.iter().try_fold(U256::ZERO, |sum, text| sum.checked_add(from_decimal(text, decimals).ok()?))
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Books { confirmed, delivered, lost, duplicated, .. } = self;
        write!(
            f,
            "sandbox: {confirmed} deposits confirmed, {delivered} events delivered, {lost} lost, {duplicated} duplicated"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALICE: Address = Address::Evm([0xaa; 20]);

    fn event(id: &str, deposit: &str, status: &str, amount: &str) -> Received {
        let data = json!({
            "id": deposit, "dedup_key": format!("key-{deposit}"), "status": status, "amount": amount,
            "account_address": ALICE.to_string(), "currency_symbol": "USDC",
        });
        Received { id: id.to_owned(), r#type: DEPOSIT_EVENT.to_owned(), data }
    }

    /// Two deposits of 5 and 1.5 USDC, both CONFIRMED.
    fn evidence() -> Evidence {
        let received = vec![
            event("e1", "d1", "PENDING", "5"),
            event("e2", "d2", "PENDING", "1.5"),
            event("e3", "d2", "CONFIRMED", "1.5"),
            event("e4", "d1", "CONFIRMED", "5"),
        ];
        let balance = U256::from(6_500_000);
        let holding = Holding { name: "alice", address: ALICE, symbol: "USDC".to_owned(), decimals: 6, balance };
        let shown_by_api = [("d1", "CONFIRMED"), ("d2", "CONFIRMED")].map(|(id, status)| (id.into(), status.into()));
        let (holdings, shown_by_api) = (vec![holding], shown_by_api.into());
        Evidence {
            received,
            refused: 0,
            holdings,
            undelivered: 0,
            unexplained: 0,
            shown_by_api,
            transfers_by_api: Shown::new(),
            spent: Vec::new(),
            proved: 0,
        }
    }

    fn line(evidence: &Evidence) -> String {
        let books = Books::of(evidence);
        format!("{books}; {}", books.faults.join("; "))
    }

    #[test]
    fn books_that_balance_say_so_and_an_event_may_arrive_again() {
        let mut evidence = evidence();
        evidence.received.push(evidence.received[0].clone());
        assert_eq!(line(&evidence), "sandbox: 2 deposits confirmed, 4 events delivered, 0 lost, 0 duplicated; ");
    }

    /// The same, and a transfer of 2 USDC.
    fn with_a_transfer(status: &str) -> Evidence {
        let mut evidence = evidence();
        let data = json!({
            "id": "t1", "status": status, "amount": "2", "source_address": ALICE.to_string(), "currency_symbol": "USDC",
        });
        let r#type = "transfer_reconciliation".to_owned();
        evidence.received.push(Received { id: "e5".to_owned(), r#type, data });
        evidence.transfers_by_api = [("t1".to_owned(), status.to_owned())].into();
        evidence.spent =
            vec![Spent { symbol: "ETH".to_owned(), decimals: 18, gone: U256::from(7), booked: U256::from(7) }];
        evidence
    }

    fn of_transfers(evidence: &Evidence) -> String {
        let books = Books::of(evidence);
        format!("{}; {}", books.of_transfers(), books.faults.join("; "))
    }

    #[test]
    fn an_event_of_a_transfer_is_counted_and_is_no_deposit_and_what_it_sent_is_gone() {
        let mut evidence = with_a_transfer("CONFIRMED");
        evidence.holdings[0].balance = U256::from(4_500_000);
        assert_eq!(line(&evidence), "sandbox: 2 deposits confirmed, 5 events delivered, 0 lost, 0 duplicated; ");
        let even = "transfers: 1 confirmed, 0 dropped with proof, 0 paid twice, ledger even to the wei; ";
        assert_eq!(of_transfers(&evidence), even);
    }

    #[test]
    fn what_the_chain_shows_as_sent_twice_and_what_no_ledger_has_is_named() {
        let mut evidence = with_a_transfer("CONFIRMED");
        evidence.holdings[0].balance = U256::from(2_500_000);
        evidence.spent[0].gone = U256::from(8);
        assert_eq!(
            of_transfers(&evidence),
            "transfers: 1 confirmed, 0 dropped with proof, 1 paid twice, ledger not even; \
             alice: 6.5 USDC is CONFIRMED and 2 sent, the chain says 2.5; \
             sponsors spent 0.000000000000000008 ETH, and 0.000000000000000007 is in the gas ledger"
        );
        evidence.holdings[0].balance = U256::from(6_500_000);
        assert!(line(&evidence).contains("1 lost, 0 duplicated"), "{}", line(&evidence));
    }

    #[test]
    fn a_dropped_transfer_needs_a_proof_that_holds_and_one_that_has_not_ended_is_named() {
        let mut evidence = with_a_transfer("DROPPED");
        assert!(of_transfers(&evidence).ends_with("; 1 transfers are DROPPED, and of 0 the proof holds"));
        evidence.proved = 1;
        let even = "transfers: 0 confirmed, 1 dropped with proof, 0 paid twice, ledger even to the wei; ";
        assert_eq!(of_transfers(&evidence), even);
        evidence.transfers_by_api = [("t1".to_owned(), "SUBMITTED".to_owned())].into();
        assert!(of_transfers(&evidence).contains("transfer t1 is DROPPED by one of events and API only"));
        let open = of_transfers(&with_a_transfer("SUBMITTED"));
        assert!(open.ends_with("; transfer t1 is still SUBMITTED"), "{open}");
    }

    #[test]
    fn the_chain_is_the_judge() {
        let mut evidence = evidence();
        evidence.holdings[0].balance = U256::from(7_000_000);
        assert_eq!(
            line(&evidence),
            "sandbox: 2 deposits confirmed, 4 events delivered, 1 lost, 0 duplicated; \
             alice: 6.5 USDC is CONFIRMED, the chain says 7"
        );
        evidence.holdings[0].balance = U256::from(5_000_000);
        assert_eq!(
            line(&evidence),
            "sandbox: 2 deposits confirmed, 4 events delivered, 0 lost, 1 duplicated; \
             alice: 6.5 USDC is CONFIRMED, the chain says 5"
        );
        evidence.holdings.clear();
        assert!(line(&evidence).contains("0 lost, 1 duplicated; USDC is CONFIRMED at 0xaA"), "{}", line(&evidence));
    }

    #[test]
    fn what_is_not_finished_is_named() {
        let mut evidence = evidence();
        evidence.received.pop();
        evidence.undelivered = 1;
        evidence.refused = 3;
        evidence.unexplained = 2;
        assert_eq!(
            line(&evidence),
            "sandbox: 1 deposits confirmed, 3 events delivered, 2 lost, 0 duplicated; \
             alice: 1.5 USDC is CONFIRMED, the chain says 6.5; 1 events are not delivered; \
             2 balances are not explained; 3 requests to the receiver were not signed or no envelope; deposit d1 is still PENDING; \
             deposit d1 is CONFIRMED by the API only; deposit d1 is PENDING by events only"
        );
    }

    #[test]
    fn one_change_under_two_ids_is_a_duplicate_and_counts_once() {
        let mut evidence = evidence();
        evidence.received.push(event("e5", "d1", "CONFIRMED", "5"));
        assert_eq!(
            line(&evidence),
            "sandbox: 2 deposits confirmed, 5 events delivered, 0 lost, 1 duplicated; \
             key-d1 is CONFIRMED under two event ids"
        );
    }

    #[test]
    fn a_confirmation_that_overtakes_is_a_fault() {
        let mut evidence = evidence();
        evidence.received.swap(1, 2);
        assert!(line(&evidence).contains("key-d2 is CONFIRMED before it is PENDING"), "{}", line(&evidence));
    }
}
