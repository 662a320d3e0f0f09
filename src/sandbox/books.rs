//! The books: what the receiver got, compared with what the chain reports, the store still holds and the API shows.
//!
//! The chain's balances are the judge: every watched address began with nothing, so its balance is what it received.
//! Pure. Each difference is a fault with a message; the last line of `sandbox --once` counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use landfall_chain::{Address, U256};

use crate::amount::{from_decimal, to_decimal};
use crate::receiver::Received;

/// What an address has of an asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Holding {
    pub(super) account_id: &'static str,
    pub(super) address: Address,
    pub(super) symbol: String,
    pub(super) decimals: u8,
    pub(super) balance: U256,
}

/// A deposit's id and status.
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
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Books {
    confirmed: usize,
    delivered: usize,
    lost: u64,
    duplicated: u64,
    pub(super) faults: Vec<String>,
}

impl Books {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let reported = ClientView::of(&evidence.received);
        let mut books = Books {
            confirmed: reported.statuses.values().filter(|status| **status == "CONFIRMED").count(),
            delivered: reported.first_arrivals.len(),
            ..Books::default()
        };
        books.compare_with_chain(&reported, &evidence.holdings);
        books.find_unfinished(&reported, evidence);
        books.find_repeated(&reported);
        books
    }

    fn compare_with_chain(&mut self, reported: &ClientView<'_>, holdings: &[Holding]) {
        let mut sums = reported.confirmed_amounts();
        for Holding { account_id, address, symbol, decimals, balance } in holdings {
            let amounts = sums.remove(&(address.to_string(), symbol.clone())).unwrap_or_default();
            let sum =
                amounts.iter().try_fold(U256::ZERO, |sum, text| sum.checked_add(from_decimal(text, *decimals).ok()?));
            let Some(sum) = sum else {
                self.faults.push(format!("{account_id}: {symbol} amounts that are none: {amounts:?}"));
                continue;
            };
            self.lost += u64::from(sum < *balance);
            self.duplicated += u64::from(sum > *balance);
            if sum != *balance {
                let [sum, balance] = [sum, *balance].map(|amount| to_decimal(amount, *decimals));
                self.faults.push(format!("{account_id}: {sum} {symbol} is CONFIRMED, the chain says {balance}"));
            }
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
    /// Each event once, where it arrived first.
    first_arrivals: Vec<&'r Received>,
    /// The latest status of each deposit, by its id.
    statuses: BTreeMap<&'r str, &'r str>,
}

impl<'r> ClientView<'r> {
    fn of(received: &'r [Received]) -> Self {
        let mut ids = BTreeSet::new();
        let first_arrivals: Vec<_> = received.iter().filter(|received| ids.insert(received.id.as_str())).collect();
        let statuses = first_arrivals.iter().map(|received| (received.field("id"), received.field("status"))).collect();
        ClientView { first_arrivals, statuses }
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
        Received { id: id.to_owned(), r#type: "deposit_v2".to_owned(), data }
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
        let holding = Holding { account_id: "alice", address: ALICE, symbol: "USDC".to_owned(), decimals: 6, balance };
        let shown_by_api = [("d1", "CONFIRMED"), ("d2", "CONFIRMED")].map(|(id, status)| (id.into(), status.into()));
        let (holdings, shown_by_api) = (vec![holding], shown_by_api.into());
        Evidence { received, refused: 0, holdings, undelivered: 0, unexplained: 0, shown_by_api }
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
