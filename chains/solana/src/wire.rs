//! The answers to `getBlock` and `getTransaction` as borrowed structs that hold only what is needed.
//!
//! Lenient where a chain grows: unknown fields, unknown transaction versions and unknown errors are skipped. Strict
//! about money: what decides about a credit must be there. It reads the shapes `accounts` (what we ask for), `json`
//! and `jsonParsed`; `base64` has no account keys and does not read as a block.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// A block whose transactions are passed on one by one, as they are read: all of them at once are megabytes of small
/// pieces. It returns the rest of the block.
pub(crate) struct WireBlock<F>(pub(crate) F);

/// A block without its transactions, which is all of it in mode `none`.
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
    Reported(&'a str),
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
    /// Not reported for blocks before 2022.
    pub(crate) owner: Option<&'a str>,
    /// Not reported for blocks before 2022.
    pub(crate) program_id: Option<&'a str>,
    #[serde(borrow)]
    pub(crate) ui_token_amount: WireAmount<'a>,
}

/// Base units; `uiAmount` beside it is a float and is not read.
#[derive(Debug, Deserialize)]
pub(crate) struct WireAmount<'a> {
    pub(crate) amount: &'a str,
    pub(crate) decimals: u8,
}

/// What a `getTransaction` answer reports beyond balances.
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

impl<'de, F: FnMut(WireTx<'de>) -> bool> DeserializeSeed<'de> for WireBlock<F> {
    type Value = WireHeader<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WireHeader<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(WireTx<'de>) -> bool> Visitor<'de> for WireBlock<F> {
    type Value = WireHeader<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<WireHeader<'de>, M::Error> {
        let (mut blockhash, mut previous_blockhash, mut parent_slot, mut block_time) = (None, None, None, None);
        let mut has_txs = false;
        while let Some(name) = map.next_key::<&'de str>()? {
            match name {
                "blockhash" => once(&mut blockhash, "blockhash", map.next_value()?)?,
                "previousBlockhash" => once(&mut previous_blockhash, "previousBlockhash", map.next_value()?)?,
                "parentSlot" => once(&mut parent_slot, "parentSlot", map.next_value()?)?,
                "blockTime" => once(&mut block_time, "blockTime", map.next_value::<Option<i64>>()?)?,
                "transactions" if has_txs => return Err(de::Error::duplicate_field("transactions")),
                "transactions" => {
                    map.next_value_seed(WireTxs(&mut self.0))?;
                    has_txs = true;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !has_txs {
            return Err(de::Error::missing_field("transactions"));
        }
        Ok(WireHeader {
            blockhash: blockhash.ok_or_else(|| de::Error::missing_field("blockhash"))?,
            previous_blockhash: previous_blockhash.ok_or_else(|| de::Error::missing_field("previousBlockhash"))?,
            parent_slot: parent_slot.ok_or_else(|| de::Error::missing_field("parentSlot"))?,
            block_time: block_time.flatten(),
        })
    }
}

/// Sets a field that must not be reported twice.
fn once<T, E: de::Error>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    if field.replace(value).is_some() { Err(de::Error::duplicate_field(name)) } else { Ok(()) }
}

/// The transactions of a block, as long as they are wanted.
struct WireTxs<'f, F>(&'f mut F);

impl<'de, F: FnMut(WireTx<'de>) -> bool> DeserializeSeed<'de> for WireTxs<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(WireTx<'de>) -> bool> Visitor<'de> for WireTxs<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("transactions")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        while let Some(tx) = seq.next_element()? {
            if !self.0(tx) {
                return Err(de::Error::custom("a transaction that is not whole"));
            }
        }
        Ok(())
    }
}

impl<'a> WireKey<'a> {
    pub(crate) fn text(self) -> &'a str {
        match self {
            WireKey::Bare(text) | WireKey::Reported(text) => text,
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
        key.map(WireKey::Reported).ok_or_else(|| de::Error::missing_field("pubkey"))
    }
}

/// Whether there is anything but null. Of a missing field serde makes an error, and that is what we want.
fn is_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(deserializer).map(|value| value.is_some())
}
