//! The form of the journal's entries: one line of JSON each.
//!
//! Promise: an entry has one form, so that its hash covers each byte of it, and the entry before.

use landfall_chain::{
    Address, Authorization, BlockHash, Carried as Load, Carrier, Family, GuardTerms, Guarded, GuardedRefill, Intent,
    Journaled, KeyPath, Reclaim, Refill, Route, TxId, U256, hash_of,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::policy::Entries;

/// `prev` of the first entry.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What stands in a content in front of what was made of it.
const MADE: &str = ",\"tx\":";

/// What an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// The first entry: whose journal it is.
    Signer,
    Intent,
    /// A payer cancels what it signed.
    Cancellation,
    /// A wallet lets a delegate act for it, or takes it away.
    Authorization,
    Carrier,
    /// A transaction that takes back guards.
    Reclaim,
}

/// One entry. The order of the fields is that of the line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// 0, 1, 2..
    pub(super) seq: u64,
    /// When, by the signer's clock: seconds since 1970.
    pub(super) at: u64,
    pub(super) kind: Kind,
    /// The transfer's id, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) transfer: Option<String>,
    /// CAIP-2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chain: Option<String>,
    /// Of the key that signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Of an intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<u64>,
    pub(super) content: Box<RawValue>,
    /// The hash of the entry before.
    pub(super) prev: String,
    pub(super) hash: String,
}

/// `content` of the first entry.
#[derive(Serialize, Deserialize)]
pub(super) struct SignerContent {
    pub(super) id: String,
}

/// `content` of an intent: all that it pays, but for the deadline.
#[derive(Serialize)]
struct IntentContent<'i> {
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'i str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decimals: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delegate: Option<String>,
    asset: String,
    payer: String,
    destination: String,
    amount: String,
}

/// What is read back of an intent's content.
#[derive(Deserialize)]
struct PaidContent {
    asset: String,
    amount: String,
}

/// How much of which asset an intent pays.
pub(super) struct Paid {
    pub(super) asset: String,
    pub(super) amount: U256,
}

/// `content` of a carrier.
#[derive(Serialize)]
struct CarrierContent {
    sponsor: String,
    /// The entry of what it carries: one of these three, or what it gives a sponsor.
    #[serde(skip_serializing_if = "Option::is_none")]
    intent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancellation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clearings: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refill: Option<Refilled>,
    /// Of the payer.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    /// The entry of what it brings beside, and its signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_signature: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clearing_signatures: Option<Vec<String>>,
    nonce: u64,
    gas_limit: u64,
    max_fee: String,
    tip: String,
    /// Its id, once it is made; behind it nothing that was asked for, see [`Line::what`].
    #[serde(skip_serializing_if = "Option::is_none")]
    tx: Option<String>,
    /// Of a sponsor whose key is in a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    sponsor_signature: Option<String>,
}

/// What is read back of what was made.
#[derive(Deserialize)]
struct MadeContent {
    tx: String,
    sponsor_signature: Option<String>,
}

/// What was made of a request for a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Made {
    /// Its id.
    pub(crate) tx: TxId,
    /// Of a carrier that a token signed: it would sign another one.
    pub(crate) signature: Option<[u8; 65]>,
}

/// What a treasury gives a sponsor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Refilled {
    number: u32,
    recipient: String,
    amount: String,
}

/// `content` of a transaction that makes a guard.
#[derive(Serialize)]
struct GuardedContent {
    sponsor: String,
    /// The entry of what it pays.
    intent: u64,
    blockhash: String,
    rent: u64,
    compute_limit: u32,
    compute_price: u64,
    memo: bool,
    makes_account: bool,
    /// As of a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    tx: Option<String>,
}

/// `content` of a refill that makes a guard.
#[derive(Serialize)]
struct RefillContent {
    sponsor: String,
    refill: Refilled,
    nonce: u64,
    blockhash: String,
    rent: u64,
    compute_limit: u32,
    compute_price: u64,
    /// As of a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    tx: Option<String>,
}

/// `content` of a transaction that takes back guards.
#[derive(Serialize, Deserialize)]
pub(super) struct ReclaimContent {
    sponsor: String,
    /// The entry of what made each guard, and what it holds.
    pub(super) guards: Vec<(u64, u64)>,
    blockhash: String,
    compute_limit: u32,
    /// As of a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    tx: Option<String>,
}

/// What is read back of a carrier's content, or of a guarded one's.
#[derive(Deserialize)]
pub(super) struct Carried {
    sponsor: String,
    /// None of what makes a guard.
    nonce: Option<u64>,
    pub(super) intent: Option<u64>,
    pub(super) cancellation: Option<u64>,
    pub(super) clearings: Option<Vec<u64>>,
    pub(super) refill: Option<Refilled>,
    pub(super) authorization: Option<u64>,
    tx: Option<String>,
}

/// `content` of a cancellation.
#[derive(Serialize)]
struct CancellationContent {
    asset: String,
    payer: String,
}

/// `content` of an authorization.
#[derive(Serialize, Deserialize)]
pub(super) struct Authorized {
    pub(super) wallet: String,
    implementation: String,
    pub(super) nonce: u64,
}

impl Refilled {
    fn of(refill: &Refill) -> Self {
        let Refill { number, recipient, amount, .. } = refill;
        Refilled { number: *number, recipient: recipient.to_string(), amount: amount.to_string() }
    }
}

impl Line {
    /// What an intent pays; `None` of what is none.
    pub(super) fn paid(&self) -> Option<Paid> {
        let is_intent = self.kind == Kind::Intent;
        let content: PaidContent = is_intent.then(|| serde_json::from_str(self.content.get()).ok())??;
        Some(Paid { asset: content.asset, amount: content.amount.parse().ok()? })
    }

    /// The first entry, of the signer with this id.
    pub(super) fn of_signer(id: &str, at: u64) -> Self {
        let content = raw(&SignerContent { id: id.to_owned() });
        Line::draft(Kind::Signer, content, at)
    }

    pub(super) fn of_intent(path: &KeyPath, intent: &Intent, at: u64) -> Self {
        let (mut name, mut version, mut program, mut decimals, mut delegate) = (None, None, None, None, None);
        match &intent.route {
            Route::Erc3009 { name: of, version: which } => (name, version) = (Some(of.as_str()), Some(which.as_str())),
            Route::Guard { program: of, decimals: places } => {
                (program, decimals) = (of.as_ref().map(Address::to_string), Some(*places));
            }
            Route::Delegate(of) => delegate = Some(of.to_string()),
        };
        let content = raw(&IntentContent {
            route: intent.route.name(),
            name,
            version,
            program,
            decimals,
            delegate,
            asset: intent.asset.to_string(),
            payer: intent.payer.to_string(),
            destination: intent.destination.to_string(),
            amount: intent.amount.to_string(),
        });
        let deadline = Some(intent.deadline);
        Line { deadline, ..Line::draft(Kind::Intent, content, at).about(path, intent) }
    }

    pub(super) fn of_cancellation(path: &KeyPath, intent: &Intent, at: u64) -> Self {
        let content = CancellationContent { asset: intent.asset.to_string(), payer: intent.payer.to_string() };
        Line::draft(Kind::Cancellation, raw(&content), at).about(path, intent)
    }

    pub(super) fn of_authorization(path: &KeyPath, authorization: &Authorization, at: u64) -> Self {
        let Authorization { chain_ref, wallet, implementation, nonce } = authorization;
        let content =
            Authorized { wallet: wallet.to_string(), implementation: implementation.to_string(), nonce: *nonce };
        let (chain, path) = (Some(chain_ref.clone()), Some(path.to_string()));
        Line { chain, path, ..Line::draft(Kind::Authorization, raw(&content), at) }
    }

    /// `entries` are those of what it carries.
    pub(super) fn of_carrier(
        path: &KeyPath,
        carrier: &Carrier,
        (entries, made): (&Entries, Option<&Made>),
        at: u64,
    ) -> Self {
        let (mut intent, mut cancellation, mut clearings, mut authorization) = (None, None, None, None);
        match entries {
            Entries::Payment { intent: seq, authorization: beside } => (intent, authorization) = (Some(*seq), *beside),
            Entries::Cancellation(seq) => cancellation = Some(*seq),
            Entries::Clearings(entries) => clearings = Some(entries.clone()),
            Entries::Refill => {}
        }
        let (mut signature, mut authorization_signature, mut clearing_signatures) = (None, None, None);
        let mut refill = None;
        match &carrier.carried {
            Load::Payment { signed, authorization } => {
                signature = Some(hex::encode(&signed.signature));
                authorization_signature = authorization.as_ref().map(|it| hex::encode(&it.signature));
            }
            Load::Cancellation(signed) => signature = Some(hex::encode(&signed.signature)),
            Load::Clearings(all) => {
                clearing_signatures = Some(all.iter().map(|it| hex::encode(&it.signature)).collect());
            }
            Load::Refill(given) => refill = Some(Refilled::of(given)),
        }
        let content = raw(&CarrierContent {
            sponsor: carrier.sponsor.to_string(),
            intent,
            cancellation,
            clearings,
            refill,
            signature,
            authorization,
            authorization_signature,
            clearing_signatures,
            nonce: carrier.nonce,
            gas_limit: carrier.gas_limit,
            max_fee: carrier.max_fee.to_string(),
            tip: carrier.tip.to_string(),
            tx: made.map(|made| made.tx.to_string()),
            sponsor_signature: made.and_then(|made| made.signature).map(hex::encode),
        });
        let line = Line::draft(Kind::Carrier, content, at);
        match carrier.carried.intent() {
            Some(intent) => line.about(path, intent),
            None => {
                let chain = carrier.carried.chain_ref().map(str::to_owned);
                Line { chain, path: Some(path.to_string()), ..line }
            }
        }
    }

    /// `entry` is that of the intent, and `tx` its own id.
    pub(super) fn of_guarded(path: &KeyPath, guarded: &Guarded, (entry, tx): (u64, Option<&TxId>), at: u64) -> Self {
        let GuardTerms { blockhash, rent, compute_limit, compute_price, memo, makes_account } = guarded.terms;
        let content = raw(&GuardedContent {
            sponsor: guarded.sponsor.to_string(),
            intent: entry,
            blockhash: hex::encode(blockhash.0),
            rent,
            compute_limit,
            compute_price,
            memo,
            makes_account,
            tx: tx.map(TxId::to_string),
        });
        Line::draft(Kind::Carrier, content, at).about(path, &guarded.intent)
    }

    /// `tx` is its id once it is made.
    pub(super) fn of_refill(path: &KeyPath, refill: &GuardedRefill, tx: Option<&TxId>, at: u64) -> Self {
        let GuardedRefill { treasury, refill, nonce, terms } = refill;
        let GuardTerms { blockhash, rent, compute_limit, compute_price, .. } = *terms;
        let content = raw(&RefillContent {
            sponsor: treasury.to_string(),
            refill: Refilled::of(refill),
            nonce: *nonce,
            blockhash: hex::encode(blockhash.0),
            rent,
            compute_limit,
            compute_price,
            tx: tx.map(TxId::to_string),
        });
        let (chain, path) = (Some(refill.chain_ref.clone()), Some(path.to_string()));
        Line { chain, path, ..Line::draft(Kind::Carrier, content, at) }
    }

    /// `entries` are those of the intents.
    pub(super) fn of_reclaim(
        path: &KeyPath,
        reclaim: &Reclaim,
        (entries, tx): (&[u64], Option<&TxId>),
        at: u64,
    ) -> Self {
        let Reclaim { sponsor, guards, blockhash, compute_limit } = reclaim;
        let content = raw(&ReclaimContent {
            sponsor: sponsor.to_string(),
            guards: entries.iter().copied().zip(guards.iter().map(|(_, lamports)| *lamports)).collect(),
            blockhash: hex::encode(blockhash.0),
            compute_limit: *compute_limit,
            tx: tx.map(TxId::to_string),
        });
        let chain = guards.first().map(|(intent, _)| intent.chain_ref.clone());
        Line { chain, path: Some(path.to_string()), ..Line::draft(Kind::Reclaim, content, at) }
    }

    fn draft(kind: Kind, content: Box<RawValue>, at: u64) -> Self {
        let (transfer, chain, path, deadline) = (None, None, None, None);
        let (prev, hash) = (NO_HASH.to_owned(), String::new());
        Line { seq: 0, at, kind, transfer, chain, path, deadline, content, prev, hash }
    }

    fn about(self, path: &KeyPath, intent: &Intent) -> Self {
        let (transfer, chain) = (hex::encode(intent.transfer_id), intent.chain_ref.clone());
        Line { transfer: Some(transfer), chain: Some(chain), path: Some(path.to_string()), ..self }
    }

    /// Puts it behind the entry with the hash `prev`.
    pub(super) fn behind(self, seq: u64, prev: &str) -> Self {
        let line = Line { seq, prev: prev.to_owned(), ..self };
        let hash = line.hashed();
        Line { hash, ..line }
    }

    /// Its line, with the end of the line.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("texts and numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads [`Line::to_bytes`]; `None` of any other form.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let line: Line = serde_json::from_slice(bytes).ok()?;
        (line.to_bytes() == bytes).then_some(line)
    }

    /// Whether it is the entry `seq`, behind the one with the hash `prev`.
    pub(super) fn is_behind(&self, seq: u64, prev: &str) -> bool {
        self.seq == seq && self.prev == prev && self.hash == self.hashed()
    }

    /// The same for equal intents, whatever their deadline, and for equal carriers, whatever was made of them; never the same
    /// for two others.
    pub(super) fn what(&self) -> [u8; 32] {
        let content = self.content.get();
        let asked = content.split_once(MADE).map_or(content.strip_suffix('}').unwrap_or(content), |(asked, _)| asked);
        hash_of([text(self.transfer.as_ref()), text(self.chain.as_ref()), asked.as_bytes()])
    }

    /// What was made of it; `None` of what is no transaction.
    pub(super) fn made(&self) -> Option<Made> {
        let MadeContent { tx, sponsor_signature } = serde_json::from_str(self.content.get()).ok()?;
        let tx = TxId::parse(self.family()?, &tx).ok()?;
        Some(Made { tx, signature: sponsor_signature.and_then(|signature| hex::decode_to_array(signature).ok()) })
    }

    fn family(&self) -> Option<Family> {
        Some(if self.chain.as_ref()?.starts_with("solana:") { Family::Solana } else { Family::Evm })
    }

    /// What it says was signed; `None` of the first entry.
    pub(super) fn journaled(&self) -> Option<Journaled> {
        let (chain_ref, family) = (self.chain.clone()?, self.family()?);
        let address = |text: &str| Address::parse(family, text).ok();
        let transfer_id = || hex::decode_to_array(self.transfer.as_deref()?).ok();
        match self.kind {
            Kind::Signer => None,
            Kind::Intent => Some(Journaled::Intent { transfer_id: transfer_id()?, deadline: self.deadline? }),
            Kind::Cancellation => Some(Journaled::Cancellation { transfer_id: transfer_id()? }),
            Kind::Authorization => {
                let Authorized { wallet, implementation, nonce } = serde_json::from_str(self.content.get()).ok()?;
                let (wallet, implementation) = (address(&wallet)?, address(&implementation)?);
                Some(Journaled::Authorization(Authorization { chain_ref, wallet, implementation, nonce }))
            }
            Kind::Carrier => {
                let Carried { sponsor, nonce, refill, tx, .. } = serde_json::from_str(self.content.get()).ok()?;
                let (sponsor, tx) = (address(&sponsor)?, TxId::parse(family, &tx?).ok()?);
                if let Some(Refilled { number, recipient, amount }) = refill {
                    let (recipient, amount) = (address(&recipient)?, amount.parse::<U256>().ok()?);
                    let refill = Refill { chain_ref, number, recipient, amount };
                    return Some(Journaled::Refill { treasury: sponsor, nonce: nonce?, refill, tx });
                }
                Some(Journaled::Carrier { transfer_id: transfer_id(), sponsor, nonce, tx })
            }
            Kind::Reclaim => {
                let ReclaimContent { sponsor, blockhash, tx, .. } = serde_json::from_str(self.content.get()).ok()?;
                let blockhash = BlockHash(hex::decode_to_array(blockhash).ok()?);
                let tx = TxId::parse(family, &tx?).ok()?;
                Some(Journaled::Reclaim { sponsor: address(&sponsor)?, blockhash, tx })
            }
        }
    }

    /// Of a carrier that refills a sponsor what it is the only one of, a chain, a treasury and its nonce; and a hash of what it
    /// gives, whatever is offered for it.
    pub(super) fn refilled(&self) -> Option<([u8; 32], [u8; 32])> {
        if self.kind != Kind::Carrier || self.transfer.is_some() {
            return None;
        }
        let Carried { sponsor, nonce, refill, .. } = serde_json::from_str(self.content.get()).ok()?;
        let Refilled { number, recipient, amount } = refill?;
        let place = [text(self.chain.as_ref()), sponsor.as_bytes(), &nonce?.to_be_bytes()];
        Some((hash_of(place), hash_of([&number.to_be_bytes()[..], recipient.as_bytes(), amount.as_bytes()])))
    }

    fn hashed(&self) -> String {
        let kind = match self.kind {
            Kind::Signer => "signer",
            Kind::Intent => "intent",
            Kind::Cancellation => "cancellation",
            Kind::Authorization => "authorization",
            Kind::Carrier => "carrier",
            Kind::Reclaim => "reclaim",
        };
        let (seq, at) = (self.seq.to_be_bytes(), self.at.to_be_bytes());
        let deadline = self.deadline.map(u64::to_be_bytes);
        let fields = [
            b"journal/v1".as_slice(),
            &seq,
            &at,
            kind.as_bytes(),
            text(self.transfer.as_ref()),
            text(self.chain.as_ref()),
            text(self.path.as_ref()),
            deadline.as_ref().map(<[u8; 8]>::as_slice).unwrap_or_default(),
            self.content.get().as_bytes(),
            self.prev.as_bytes(),
        ];
        hex::encode(hash_of(fields))
    }
}

fn text(field: Option<&String>) -> &[u8] {
    field.map(String::as_bytes).unwrap_or_default()
}

fn raw<T: Serialize>(content: &T) -> Box<RawValue> {
    to_raw_value(content).expect("texts and numbers are JSON")
}
