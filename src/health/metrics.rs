//! The metrics: numbers of the status report under stable names, as Prometheus reads them.
//!
//! What is not known has no sample. `docs/reference/status-and-health.md` has a row for each, which a test keeps.

use std::fmt::Write;

use crate::health::{ChainReport, SenderReport, Status};

/// A number of the status report; all are gauges.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    help: &'static str,
    /// Of each its labels, and the value.
    samples: fn(&Status) -> Vec<(String, u64)>,
}

/// All of them but [`COMPLAINTS`]. A name stays as it is.
pub const METRICS: [Metric; 15] = [
    Metric {
        name: "landfall_chain_lag_blocks",
        help: "Blocks that the cursor is behind the newest one.",
        samples: |status| of_chains(status, |chain| chain.lag_blocks),
    },
    Metric {
        name: "landfall_chain_lag_seconds",
        help: "Time since the cursor stood at the newest block.",
        samples: |status| of_chains(status, |chain| chain.lag_secs),
    },
    Metric {
        name: "landfall_chain_alarms",
        help: "Alarms and open incidents.",
        samples: |status| of_chains(status, |chain| Some(count(chain.alarms.len()))),
    },
    Metric {
        name: "landfall_sender_leads",
        help: "1 while a process sends.",
        samples: |status| of_senders(status, |sender| Some(u64::from(sender.leader.is_some()))),
    },
    Metric {
        name: "landfall_sender_halted",
        help: "1 while a person has stopped the sending.",
        samples: |status| of_senders(status, |sender| Some(u64::from(sender.halted.is_some()))),
    },
    Metric { name: "landfall_transfers", help: "Transfers under way, by stage.", samples: transfers },
    Metric {
        name: "landfall_transfers_oldest_seconds",
        help: "Age of the oldest transfer under way.",
        samples: |status| of_senders(status, |sender| sender.oldest_secs),
    },
    Metric { name: "landfall_sponsors", help: "Sponsors by state.", samples: sponsors },
    Metric {
        name: "landfall_sponsors_poor",
        help: "Sponsors that own too little, as nodes say.",
        samples: |status| {
            let poor = |sender: &SenderReport| sender.sponsors.iter().filter(|it| it.poor_secs.is_some()).count();
            of_senders(status, |sender| Some(count(poor(sender))))
        },
    },
    Metric {
        name: "landfall_signer_away_seconds",
        help: "For how long the signer has not answered; 0 while it does.",
        samples: |status| of_chains(status, |chain| Some(chain.signer.as_ref()?.away_secs.unwrap_or(0))),
    },
    Metric {
        name: "landfall_gas_price_age_seconds",
        help: "Age of the newest price of what transactions are paid in.",
        samples: |status| of_chains(status, |chain| chain.gas.as_ref()?.price_secs),
    },
    Metric {
        name: "landfall_gas_unpriced",
        help: "Entries of the gas ledger that wait for a price.",
        samples: |status| of_chains(status, |chain| Some(chain.gas.as_ref()?.unpriced)),
    },
    Metric {
        name: "landfall_deliveries_pending",
        help: "Deliveries that have not arrived.",
        samples: |status| vec![(String::new(), status.events.pending)],
    },
    Metric {
        name: "landfall_deliveries_due_seconds",
        help: "For how long the oldest delivery has been due that nothing holds up; 0 without one.",
        samples: |status| vec![(String::new(), status.events.oldest_due_secs.unwrap_or(0))],
    },
    Metric {
        name: "landfall_feed_lag_seconds",
        help: "Age of the oldest event without a number; 0 when each has one.",
        samples: |status| vec![(String::new(), status.feed.lag_secs.unwrap_or(0))],
    },
];

/// How many lines `landfall health` would print.
pub const COMPLAINTS: &str = "landfall_complaints";

/// All metrics as text.
pub(super) fn rendered(status: &Status, complaints: usize) -> String {
    let mut text = String::new();
    write(&mut text, (COMPLAINTS, "What `landfall health` finds wrong."), &[(String::new(), count(complaints))]);
    for Metric { name, help, samples } in METRICS {
        write(&mut text, (name, help), &samples(status));
    }
    text
}

fn write(text: &mut String, (name, help): (&str, &str), samples: &[(String, u64)]) {
    // A String takes everything.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in samples {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn of_chains(status: &Status, value: impl Fn(&ChainReport) -> Option<u64>) -> Vec<(String, u64)> {
    let sample = |chain: &ChainReport| Some((format!("chain=\"{}\"", chain.chain), value(chain)?));
    status.chains.iter().filter_map(sample).collect()
}

fn of_senders(status: &Status, value: impl Fn(&SenderReport) -> Option<u64>) -> Vec<(String, u64)> {
    of_chains(status, |chain| value(chain.sender.as_ref()?))
}

fn transfers(status: &Status) -> Vec<(String, u64)> {
    let stages = |sender: &SenderReport| {
        [("waiting", sender.waiting), ("in_flight", sender.in_flight), ("expiring", sender.expiring)]
    };
    of_each(status, "stage", |sender| stages(sender).to_vec())
}

fn sponsors(status: &Status) -> Vec<(String, u64)> {
    let of = |sender: &SenderReport, state: &str| sender.sponsors.iter().filter(|it| it.state == state).count();
    of_each(status, "state", |sender| {
        ["active", "paused", "quarantined"].map(|state| (state, of(sender, state))).to_vec()
    })
}

fn of_each(
    status: &Status,
    label: &str,
    values: impl Fn(&SenderReport) -> Vec<(&'static str, usize)>,
) -> Vec<(String, u64)> {
    let of_chain = |chain: &ChainReport| {
        let values = chain.sender.as_ref().map(&values).unwrap_or_default();
        let chain = chain.chain;
        let sample = move |(of, value)| (format!("chain=\"{chain}\",{label}=\"{of}\""), count(value));
        values.into_iter().map(sample).collect::<Vec<_>>()
    };
    status.chains.iter().flat_map(of_chain).collect()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
