//! The answers to `getBlock` and `getTransaction` as borrowed structs that hold only what is needed.
//!
//! Lenient where a chain grows: unknown fields, unknown transaction versions and errors that nobody has heard of are
//! read over. Strict where money stands: what decides about a credit must be there. Read are the shapes `accounts` (what
//! we ask for), `json` and `jsonParsed`; `base64` has no account keys and does not read as a block.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireBlock<'a> {
    pub(crate) blockhash: &'a str,
    pub(crate) previous_blockhash: &'a str,
    pub(crate) parent_slot: u64,
    pub(crate) block_time: Option<i64>,
    #[serde(borrow)]
    pub(crate) transactions: Vec<WireTx<'a>>,
}

/// The same without its transactions: mode `none`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireHeader<'a> {
    pub(crate) blockhash: &'a str,
    pub(crate) previous_blockhash: &'a str,
    pub(crate) parent_slot: u64,
    pub(crate) block_time: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireTx<'a> {
    #[serde(borrow)]
    pub(crate) transaction: WireBody<'a>,
    pub(crate) meta: Option<WireMeta<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireBody<'a> {
    #[serde(borrow)]
    pub(crate) signatures: Vec<&'a str>,
    /// Shape `accounts`.
    pub(crate) account_keys: Option<Vec<WireKey<'a>>>,
    /// Shapes `json` and `jsonParsed`.
    pub(crate) message: Option<WireMessage<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireMessage<'a> {
    #[serde(borrow)]
    pub(crate) account_keys: Vec<WireKey<'a>>,
}

/// An account of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireKey<'a> {
    /// Shape `json`: accounts that come from lookup tables stand in `loadedAddresses`, behind these.
    Bare(&'a str),
    /// With attributes: here those from lookup tables stand among the others.
    Told(&'a str),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireMeta<'a> {
    /// `err` must be there, and be null, for a transaction to count as one that succeeded.
    #[serde(rename = "err", deserialize_with = "is_some")]
    pub(crate) failed: bool,
    pub(crate) fee: u64,
    pub(crate) pre_balances: Vec<u64>,
    pub(crate) post_balances: Vec<u64>,
    #[serde(borrow)]
    pub(crate) pre_token_balances: Vec<WireTokenBalance<'a>>,
    #[serde(borrow)]
    pub(crate) post_token_balances: Vec<WireTokenBalance<'a>>,
    #[serde(borrow)]
    pub(crate) loaded_addresses: Option<WireLoaded<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireLoaded<'a> {
    #[serde(borrow)]
    pub(crate) writable: Vec<&'a str>,
    #[serde(borrow)]
    pub(crate) readonly: Vec<&'a str>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireTokenBalance<'a> {
    pub(crate) account_index: usize,
    pub(crate) mint: &'a str,
    /// Not told of blocks before 2022.
    pub(crate) owner: Option<&'a str>,
    /// Not told of blocks before 2022.
    pub(crate) program_id: Option<&'a str>,
    #[serde(borrow)]
    pub(crate) ui_token_amount: WireAmount<'a>,
}

/// Base units; `uiAmount` beside it is a float and is not looked at.
#[derive(Debug, Deserialize)]
pub(crate) struct WireAmount<'a> {
    pub(crate) amount: &'a str,
    pub(crate) decimals: u8,
}

/// What a `getTransaction` answer tells beyond balances.
#[derive(Debug, Deserialize)]
pub(crate) struct WireProgram<'a> {
    #[serde(borrow)]
    pub(crate) transaction: WireProgramBody<'a>,
    #[serde(borrow)]
    pub(crate) meta: WireProgramMeta<'a>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireProgramBody<'a> {
    #[serde(borrow)]
    pub(crate) message: WireProgramMessage<'a>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireProgramMessage<'a> {
    #[serde(borrow)]
    pub(crate) instructions: Vec<WireInstruction<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireProgramMeta<'a> {
    /// Null where the node does not record them.
    #[serde(borrow)]
    pub(crate) inner_instructions: Option<Vec<WireInner<'a>>>,
}

/// The instructions that the one at `index` called.
#[derive(Debug, Deserialize)]
pub(crate) struct WireInner<'a> {
    pub(crate) index: usize,
    #[serde(borrow)]
    pub(crate) instructions: Vec<WireInstruction<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireInstruction<'a> {
    pub(crate) program_id_index: usize,
    pub(crate) accounts: Vec<usize>,
    pub(crate) data: &'a str,
}

impl<'a> WireBlock<'a> {
    pub(crate) fn header(&self) -> WireHeader<'a> {
        let WireBlock { blockhash, previous_blockhash, parent_slot, block_time, .. } = *self;
        WireHeader { blockhash, previous_blockhash, parent_slot, block_time }
    }
}

impl<'a> WireKey<'a> {
    pub(crate) fn text(self) -> &'a str {
        match self {
            WireKey::Bare(text) | WireKey::Told(text) => text,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireKey<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = WireKey<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an account key")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<WireKey<'de>, E> {
        Ok(WireKey::Bare(text))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<WireKey<'de>, M::Error> {
        let mut key = None;
        while let Some(name) = map.next_key::<&'de str>()? {
            if name == "pubkey" {
                key = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        key.map(WireKey::Told).ok_or_else(|| de::Error::missing_field("pubkey"))
    }
}

/// Whether there is anything but null. Of a missing field serde makes an error, and that is what we want.
fn is_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(deserializer).map(|value| value.is_some())
}
