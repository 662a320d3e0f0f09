//! The traces of a block as `trace_block` reports them (Parity's form, of Erigon, Nethermind, Besu and reth): a flat
//! list of frames, each with its path from the root frame.
//!
//! Frames are sorted by that path: older reth reports a self-destruction before what came before it. Some nodes leave
//! out zero-value calls of precompiled contracts, but count them: gaps are no fault. Each of these is an error: a
//! frame without the frame around it, one reported twice, one of another block, more frames than the frame around them
//! counted.

use alloy::primitives::{Address, B256};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::hex::Amount;
use crate::traces::frames::{Act, Frame, Malformed, Trace};

/// One frame, or the reward of a block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireFrame<'a> {
    block_hash: B256,
    /// A block's reward has none.
    transaction_hash: Option<B256>,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    action: WireAction<'a>,
    result: Option<WireResult>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    subtraces: usize,
    #[serde(default)]
    trace_address: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAction<'a> {
    #[serde(borrow)]
    call_type: Option<&'a str>,
    from: Option<Address>,
    to: Option<Address>,
    value: Option<Amount>,
    /// Of a self-destruction: who, to whom, and how much.
    address: Option<Address>,
    refund_address: Option<Address>,
    balance: Option<Amount>,
}

#[derive(Deserialize)]
struct WireResult {
    /// The created contract.
    address: Option<Address>,
}

/// The traces of the transactions of `block`, in its order.
pub(crate) fn read(block: B256, frames: Vec<WireFrame<'_>>) -> Result<Vec<Trace>, Malformed> {
    let mut groups: Vec<(B256, Vec<WireFrame<'_>>)> = Vec::new();
    for frame in frames {
        if frame.block_hash != block {
            return Err(Malformed(format!("a trace is of block {}, not of {block}", frame.block_hash)));
        }
        let Some(tx) = frame.transaction_hash else {
            if frame.kind == "reward" {
                continue;
            }
            return Err(Malformed("a trace belongs to no transaction".to_owned()));
        };
        match groups.last_mut() {
            Some((last, group)) if *last == tx => group.push(frame),
            _ => groups.push((tx, vec![frame])),
        }
    }
    // A malformed frame is an error of its transaction alone: whether its trace is needed is not known here.
    let transaction = |(tx, group)| match in_order(group) {
        Ok(frames) => Trace { tx: Some(tx), frames, error: None },
        Err(Malformed(reason)) => Trace { tx: Some(tx), frames: Vec::new(), error: Some(reason) },
    };
    Ok(groups.into_iter().map(transaction).collect())
}

/// The frames of one transaction. Sorted by path, a frame comes behind the one around it and before the next one.
fn in_order(mut group: Vec<WireFrame<'_>>) -> Result<Vec<Frame>, Malformed> {
    group.sort_by(|a, b| a.trace_address.cmp(&b.trace_address));
    let mut frames = Vec::with_capacity(group.len());
    let mut inside = vec![0_usize; group.len()];
    // The frames around the current one, outermost first.
    let mut open: Vec<usize> = Vec::new();
    for (index, wire) in group.iter().enumerate() {
        let way = wire.trace_address.as_slice();
        open.truncate(way.len());
        let around = open.last().map(|around| group[*around].trace_address.as_slice());
        let twice = index.checked_sub(1).is_some_and(|before| group[before].trace_address == way);
        if twice || open.len() != way.len() || around != way.split_last().map(|(_, around)| around) {
            return Err(Malformed(format!("the frame at {way:?} is told twice, or the one around it is not")));
        }
        if let Some(around) = open.last() {
            inside[*around] += 1;
        }
        frames.push(frame(open.last().copied(), wire)?);
        open.push(index);
    }
    if let Some((wire, count)) = group.iter().zip(inside).find(|(wire, count)| *count > wire.subtraces) {
        let (way, stated) = (&wire.trace_address, wire.subtraces);
        return Err(Malformed(format!("the frame at {way:?} has {count} frames inside, but counts {stated}")));
    }
    Ok(frames)
}

fn frame(parent: Option<usize>, wire: &WireFrame<'_>) -> Result<Frame, Malformed> {
    let action = &wire.action;
    let (mut ends, mut value) = ([action.from, action.to], action.value);
    let act = match (wire.kind, action.call_type) {
        ("call", Some("call")) => Act::Call,
        ("call", Some("staticcall")) => Act::Look,
        ("call", Some("delegatecall" | "callcode")) => Act::Borrow,
        ("create", _) => {
            ends = [action.from, wire.result.as_ref().and_then(|result| result.address)];
            Act::Create
        }
        ("suicide" | "selfdestruct", _) => {
            (ends, value) = ([action.address, action.refund_address], action.balance);
            Act::Destroy
        }
        (_, _) => Act::Unknown,
    };
    // Ambiguous: neither an error nor none.
    if wire.error.is_some_and(|error| error.get() == "\"\"") {
        return Err(Malformed("a frame has an error without words".to_owned()));
    }
    let value = value.map(|value| value.0).unwrap_or_default();
    let [from, to] = ends;
    Ok(Frame { parent, act, from, to, value, failed: wire.error.is_some() })
}
