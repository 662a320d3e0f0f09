//! What a tracer gets wrong: a client's own mistake, made of every block and each time that it is asked.
//!
//! Unlike a fault it strikes always, and the proof of no block catches it. It is made in the form of geth's
//! `callTracer`.

use serde_json::{Value, json};

/// One way to be wrong about the first payment inside of a block's transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// It is reported once more, as a self-destruction at the end of the same transaction.
    ReportedTwice,
    /// Failed frames show no error.
    WithoutError,
    /// It is reported under the next transaction.
    OtherTransaction,
    LeftOut,
    /// One wei more.
    WrongValue,
    /// It goes to the recipient of the block's last payment.
    WrongRecipient,
    /// Its frame has a type that nobody knows.
    UnknownKind,
    /// It stands inside of a frame that failed.
    InsideFailed,
}

impl Mistake {
    pub const ALL: [Mistake; 8] = [
        Mistake::ReportedTwice,
        Mistake::WithoutError,
        Mistake::OtherTransaction,
        Mistake::LeftOut,
        Mistake::WrongValue,
        Mistake::WrongRecipient,
        Mistake::UnknownKind,
        Mistake::InsideFailed,
    ];

    /// The answer of a tracer that errs so; nothing where no transaction of the block pays inside.
    pub(crate) fn made_in(self, text: &str) -> Option<String> {
        let mut traces: Value = serde_json::from_str(text).ok()?;
        let list = traces.as_array_mut()?;
        let last = list.iter().rev().find_map(|trace| trace["result"]["to"].as_str()).map(str::to_owned);
        let at =
            list.iter().position(|trace| trace["result"]["calls"].as_array().is_some_and(|calls| !calls.is_empty()))?;
        if self == Mistake::WithoutError {
            list.iter_mut().for_each(|trace| unmark(&mut trace["result"]["calls"]));
            return Some(traces.to_string());
        }
        let calls = list[at]["result"]["calls"].as_array_mut()?;
        let payment = calls.remove(0);
        let to = |kind: &str, key: &str, value: Value| {
            let mut other = payment.clone();
            other[key] = value;
            other["type"] = if kind.is_empty() { other["type"].clone() } else { json!(kind) };
            other
        };
        match self {
            Mistake::ReportedTwice => {
                calls.insert(0, payment.clone());
                calls.push(to("SELFDESTRUCT", "from", payment["from"].clone()));
            }
            Mistake::OtherTransaction => {
                let next = list.get_mut(at + 1)?;
                let mut others = next["result"]["calls"].as_array().cloned().unwrap_or_default();
                others.push(payment);
                next["result"]["calls"] = Value::Array(others);
            }
            Mistake::LeftOut => {}
            Mistake::WrongValue => {
                let wei = u128::from_str_radix(payment["value"].as_str()?.trim_start_matches("0x"), 16).ok()?;
                calls.insert(0, to("", "value", json!(format!("{:#x}", wei + 1))));
            }
            Mistake::WrongRecipient => calls.insert(0, to("", "to", json!(last?))),
            Mistake::UnknownKind => calls.insert(0, to("TELEPORT", "from", payment["from"].clone())),
            Mistake::InsideFailed => calls.insert(
                0,
                json!({
                    "type": "CALL", "from": payment["from"], "to": payment["from"], "value": "0x0", "gas": "0x0",
                    "gasUsed": "0x0", "input": "0x", "error": "execution reverted", "calls": [payment],
                }),
            ),
            Mistake::WithoutError => return None,
        }
        Some(traces.to_string())
    }
}

fn unmark(calls: &mut Value) {
    for call in calls.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default() {
        if let Some(call) = call.as_object_mut() {
            call.remove("error");
        }
        unmark(&mut call["calls"]);
    }
}
