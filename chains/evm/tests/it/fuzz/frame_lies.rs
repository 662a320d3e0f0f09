//! Lies about what moved inside of a transaction: from a wrong digit to a payment that nobody made.
//!
//! Each lie is a line in [`LIES`]: it takes dice and the traces of a block in either form, and may find nothing to do.
//! The changes that know nothing of traces are those of `mutate`.

use std::fmt;

use serde_json::{Value, json};

use super::corpus::Corpus;
use super::frames::{Form, KINDS, PEOPLE};
use super::mutate::{self, CHANGES, Change};
use super::walk::Dice;
use crate::trace::frame;

/// One lie. Equal ones do the same to the same traces.
#[derive(Clone)]
pub(super) struct FrameLie {
    kind: usize,
    dice: u64,
}

type Report = fn(&mut Dice, &mut Value, Form);

const LIES: [(&str, Report); 12] = [
    ("payment inside", pay_inside),
    ("error taken away", |dice, traces, form| with_frame(dice, traces, form, |_, frame, _| unmark(frame))),
    ("error put there", |dice, traces, form| {
        with_frame(dice, traces, form, |_, frame, _| frame["error"] = json!("execution reverted"));
    }),
    ("another type", another_type),
    ("another value", |dice, traces, form| another_field(dice, traces, form, "value")),
    ("another sender", |dice, traces, form| another_field(dice, traces, form, "from")),
    ("another recipient", |dice, traces, form| another_field(dice, traces, form, "to")),
    ("frame dropped", drop_frame),
    ("another transaction", another_tx),
    ("exchanged", exchange),
    ("nothing told", nothing_reported),
    ("another way", another_way),
];

/// The changes of `mutate` that know nothing of blocks stand first.
const PLAIN_CHANGES: usize = 12;

/// How many kinds of lies there are.
pub(super) const KINDS_OF_LIES: usize = LIES.len() + PLAIN_CHANGES;

impl FrameLie {
    pub(super) fn new(kind: usize, dice: u64) -> FrameLie {
        FrameLie { kind, dice }
    }

    pub(super) fn name(&self) -> &'static str {
        LIES.get(self.kind).map_or_else(|| CHANGES[self.kind - LIES.len()].0, |(name, _)| *name)
    }

    pub(super) fn report(&self, traces: &mut Value, form: Form, corpus: &Corpus) {
        if let Some((_, report)) = LIES.get(self.kind) {
            return report(&mut Dice::new(self.dice), traces, form);
        }
        let mut answers = vec![(form.method(), std::mem::take(traces))];
        Change { kind: self.kind - LIES.len(), dice: self.dice }.apply(&mut answers, corpus);
        *traces = answers.remove(0).1;
    }
}

impl fmt::Debug for FrameLie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.name(), self.dice)
    }
}

/// The traces with all of these lies, as text.
pub(super) fn lied(traces: &Value, lies: &[FrameLie], form: Form, corpus: &Corpus) -> String {
    let mut traces = traces.clone();
    lies.iter().for_each(|lie| lie.report(&mut traces, form, corpus));
    mutate::text(&traces)
}

/// Where the frames are, as JSON pointers.
fn places(traces: &Value, form: Form) -> Vec<String> {
    let count = traces.as_array().map_or(0, Vec::len);
    match form {
        Form::Flat => (0..count).map(|index| format!("/{index}")).collect(),
        Form::Nested => {
            let mut found: Vec<String> = (0..count).map(|index| format!("/{index}/result")).collect();
            let mut next = 0;
            while let Some(place) = found.get(next).cloned() {
                let calls = traces.pointer(&format!("{place}/calls")).and_then(Value::as_array).map_or(0, Vec::len);
                found.extend((0..calls).map(|index| format!("{place}/calls/{index}")));
                next += 1;
            }
            found
        }
    }
}

fn with_frame(dice: &mut Dice, traces: &mut Value, form: Form, change: fn(&mut Dice, &mut Value, Form)) {
    let places = places(traces, form);
    if places.is_empty() {
        return;
    }
    let place = dice.of(&places).clone();
    if let Some(frame) = traces.pointer_mut(&place).filter(|frame| frame.is_object()) {
        change(dice, frame, form);
    }
}

fn unmark(frame: &mut Value) {
    if let Some(fields) = frame.as_object_mut() {
        fields.remove("error");
    }
}

fn another_type(dice: &mut Dice, traces: &mut Value, form: Form) {
    with_frame(dice, traces, form, |dice, frame, form| match form {
        Form::Nested => frame["type"] = json!(dice.of(&KINDS)),
        Form::Flat if frame["action"].is_object() => {
            frame["action"]["callType"] = json!(dice.of(&KINDS).to_lowercase());
        }
        Form::Flat => frame["type"] = json!(dice.of(&["call", "create", "suicide", "reward"])),
    });
}

fn another_field(dice: &mut Dice, traces: &mut Value, form: Form, field: &'static str) {
    let places = places(traces, form);
    if places.is_empty() {
        return;
    }
    let action = if form == Form::Flat { "/action" } else { "" };
    let place = format!("{}{action}/{field}", dice.of(&places));
    let put = if field == "value" { json!(format!("{:#x}", dice.below(4))) } else { json!(dice.of(&PEOPLE)) };
    if let Some(old) = traces.pointer_mut(&place) {
        *old = put;
    }
}

fn pay_inside(dice: &mut Dice, traces: &mut Value, form: Form) {
    let places = places(traces, form);
    let (from, to, value) = (*dice.of(&PEOPLE), *dice.of(&PEOPLE), u64::from(dice.one_in(2)) + 1);
    match form {
        Form::Nested => with_frame(dice, traces, form, |dice, around, _| {
            let (from, to) = (*dice.of(&PEOPLE), *dice.of(&PEOPLE));
            let paid = frame("CALL", from, to, 1, Vec::new());
            match around.get_mut("calls").and_then(Value::as_array_mut) {
                Some(calls) => calls.insert(dice.below(calls.len() + 1), paid),
                None => around["calls"] = json!([paid]),
            }
        }),
        Form::Flat if places.is_empty() => {}
        Form::Flat => {
            let at = dice.below(places.len());
            let mut around = traces[at].clone();
            let Some(count) = around["subtraces"].as_u64() else { return };
            let Some(mut way) = around["traceAddress"].as_array().cloned() else { return };
            way.push(json!(count));
            around["subtraces"] = json!(count + 1);
            let mut paid = around.clone();
            paid["type"] = json!("call");
            paid["action"] = json!({ "callType": "call", "from": from, "to": to, "value": format!("{value:#x}") });
            (paid["subtraces"], paid["traceAddress"]) = (json!(0), json!(way));
            unmark(&mut paid);
            traces[at] = around;
            if let Some(frames) = traces.as_array_mut() {
                frames.insert(at + 1, paid);
            }
        }
    }
}

fn drop_frame(dice: &mut Dice, traces: &mut Value, form: Form) {
    let mut places = places(traces, form);
    // A root frame is no item of a list of calls.
    places.retain(|place| form == Form::Flat || place.contains("/calls/"));
    if places.is_empty() {
        return;
    }
    let place = dice.of(&places);
    let (list, index) = place.rsplit_once('/').unwrap();
    if let Some(items) = traces.pointer_mut(list).and_then(Value::as_array_mut) {
        items.remove(index.parse().unwrap());
    }
}

/// Says of a trace that it is of another transaction, or of none.
fn another_tx(dice: &mut Dice, traces: &mut Value, form: Form) {
    let Some(items) = traces.as_array_mut().filter(|items| !items.is_empty()) else { return };
    let name = if form == Form::Flat { "transactionHash" } else { "txHash" };
    let other = dice.of(items).get(name).cloned().unwrap_or_default();
    let at = dice.below(items.len());
    let Some(fields) = items[at].as_object_mut() else { return };
    if dice.one_in(4) {
        fields.remove(name);
    } else {
        fields.insert(name.to_owned(), other);
    }
}

/// What two transactions, or two frames, did changes places.
fn exchange(dice: &mut Dice, traces: &mut Value, form: Form) {
    let Some(items) = traces.as_array_mut().filter(|items| !items.is_empty()) else { return };
    let (one, other) = (dice.below(items.len()), dice.below(items.len()));
    let name = if form == Form::Flat { "action" } else { "result" };
    let (first, second) = (items[one].get(name).cloned(), items[other].get(name).cloned());
    if let (Some(first), Some(second)) = (first, second) {
        (items[one][name], items[other][name]) = (second, first);
    }
}

/// Of one transaction, or of any.
fn nothing_reported(dice: &mut Dice, traces: &mut Value, form: Form) {
    let Some(items) = traces.as_array_mut().filter(|items| !items.is_empty()) else { return };
    let at = dice.below(items.len());
    match dice.below(4) {
        0 => items.clear(),
        1 => drop(items.remove(at)),
        _ if form == Form::Nested && items[at].is_object() => {
            items[at] = json!({ "txHash": items[at]["txHash"], "error": "execution timeout" });
        }
        _ => items.truncate(at),
    }
}

fn another_way(dice: &mut Dice, traces: &mut Value, form: Form) {
    if form == Form::Nested {
        return exchange(dice, traces, form);
    }
    with_frame(dice, traces, form, |dice, frame, _| {
        if dice.one_in(3) {
            frame["subtraces"] = json!(dice.below(4));
        } else if let Some(way) = frame["traceAddress"].as_array_mut() {
            match dice.below(3) {
                0 => drop(way.pop()),
                1 => way.push(json!(dice.below(3))),
                _ => way.iter_mut().for_each(|step| *step = json!(dice.below(3))),
            }
        }
    });
}
