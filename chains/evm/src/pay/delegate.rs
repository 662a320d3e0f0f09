//! Delegates of any kind: what a payer signs for one, the call that redeems it, what its logs prove, and whether the
//! code at its addresses is the listed code.
//!
//! This is the one place that distinguishes delegates.
//! Promises: a use counts only by the logs of listed code, and only exactly what these logs say was executed
//! counts as paid. Code is compared as a whole, except for its metadata and for what differs by chain. Addresses that
//! the code trusts are compared too.

use std::collections::HashMap;

use alloy::primitives::{B256, keccak256};
use landfall_chain::{Delegate, Intent, IntentKey, SignedIntent, U256};

use crate::pay::metamask::{Execution, Metamask};
use crate::pay::{PayError, SIGNATURE_LEN, evm, own};
use crate::wire::WireLog;

pub(crate) use crate::pay::metamask::{REDEEMED, USED_ID};

/// In front of the implementation's address, the code of a wallet for which it acts (EIP-7702).
const DESIGNATOR: [u8; 3] = [0xef, 0x01, 0x00];

/// A contract, and a call of it.
pub(super) type CallOf = ([u8; 20], Vec<u8>);

/// Where it stands whether a one-time key is used: 0 or 1.
pub(super) enum UsedAt {
    /// In the answer to a call.
    Call(CallOf),
    /// In a contract's storage.
    Slot([u8; 20], [u8; 32]),
}

/// What a wallet was made to pay under an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Use {
    pub(super) payer: [u8; 20],
    pub(super) key: IntentKey,
    /// The token's contract; `None` for the native currency.
    pub(super) token: Option<[u8; 20]>,
    pub(super) destination: [u8; 20],
    pub(super) amount: U256,
    /// What was to be executed did not fail.
    pub(super) is_paid: bool,
}

/// What the code at an address must be.
pub(super) struct Code {
    pub(super) name: &'static str,
    pub(super) address: [u8; 20],
    pub(super) has_metadata: bool,
    /// Words that must stand at these places.
    pub(super) trusted: Vec<(usize, [u8; 32])>,
    /// Places of words that differ by chain.
    pub(super) own: &'static [usize],
    /// Of the code without its metadata, with zeros at all these places.
    pub(super) hash: B256,
}

/// What the payer's key signs.
pub(super) fn digest(delegate: &Delegate, intent: &Intent) -> Result<[u8; 32], PayError> {
    match delegate {
        Delegate::Metamask { .. } => Metamask::of(delegate)?.digest(intent),
        Delegate::Own { .. } => own::digest(intent),
    }
}

/// The call that anybody may make with the payer's signature.
pub(super) fn call(delegate: &Delegate, SignedIntent { intent, signature }: &SignedIntent) -> Result<CallOf, PayError> {
    let length = signature.len();
    let signature =
        <&[u8; SIGNATURE_LEN]>::try_from(signature.as_slice()).map_err(|_| PayError::SignatureLength(length))?;
    match delegate {
        Delegate::Metamask { .. } => {
            let metamask = Metamask::of(delegate)?;
            Ok((metamask.manager, metamask.call_data(intent, signature)?))
        }
        Delegate::Own { .. } => Ok((evm(&intent.payer)?, own::call_data(intent, signature)?)),
    }
}

/// Where it stands whether the intent's id is used.
pub(super) fn used_at(delegate: &Delegate, intent: &Intent) -> Result<UsedAt, PayError> {
    match delegate {
        Delegate::Metamask { .. } => {
            let metamask = Metamask::of(delegate)?;
            Ok(UsedAt::Call((metamask.ids, metamask.state_data(intent)?)))
        }
        // Also while the wallet has no code that would answer.
        Delegate::Own { .. } => Ok(UsedAt::Slot(evm(&intent.payer)?, own::slot(intent))),
    }
}

/// The call that asks whether the delegate's owner has paused it; `None` where it has no owner.
pub(super) fn paused(delegate: &Delegate) -> Result<Option<CallOf>, PayError> {
    match delegate {
        Delegate::Metamask { .. } => Ok(Some((Metamask::of(delegate)?.manager, Metamask::paused_data()))),
        Delegate::Own { .. } => Ok(None),
    }
}

/// What the code of its contracts must be.
pub(super) fn codes(delegate: &Delegate) -> Result<Vec<Code>, PayError> {
    match delegate {
        Delegate::Metamask { .. } => Ok(Metamask::of(delegate)?.codes()),
        Delegate::Own { implementation } => Ok(vec![own::code(implementation)?]),
    }
}

/// Whether nothing is ever signed for it on a public network.
pub(super) const fn is_for_private_chains(delegate: &Delegate) -> bool {
    match delegate {
        Delegate::Metamask { .. } => false,
        Delegate::Own { .. } => true,
    }
}

/// The contracts whose logs prove a use, each with the first topic of these. Wallets that log it themselves are not among
/// them.
pub(crate) fn sources(delegate: &Delegate) -> Vec<([u8; 20], B256)> {
    match (delegate, Metamask::of(delegate)) {
        (Delegate::Metamask { .. }, Ok(metamask)) => vec![(metamask.ids, USED_ID), (metamask.manager, REDEEMED)],
        // Of another family: it has no logs here.
        (Delegate::Metamask { .. }, Err(_)) | (Delegate::Own { .. }, _) => Vec::new(),
    }
}

/// The uses in one transaction, by its logs in their order.
pub(super) fn uses(delegate: &Delegate, logs: &[WireLog<'_>]) -> Vec<Use> {
    match delegate {
        Delegate::Metamask { .. } => Metamask::of(delegate).map_or_else(|_| Vec::new(), |it| redeemed(&it, logs)),
        Delegate::Own { .. } => logs.iter().filter_map(own::settled).collect(),
    }
}

/// A use whose execution no log of the manager reports, or which is no payment, is none of ours and left out.
fn redeemed(metamask: &Metamask, logs: &[WireLog<'_>]) -> Vec<Use> {
    let used: Vec<([u8; 20], [u8; 32])> = logs.iter().filter_map(|log| metamask.used(log)).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let redeemed = logs.iter().filter_map(|log| metamask.redeemed(log));
    let redeemed: HashMap<([u8; 20], [u8; 32]), Execution> = redeemed.map(|(of, id, it)| ((of, id), it)).collect();
    let of_use = |(payer, id): ([u8; 20], [u8; 32])| {
        let (token, destination, amount) = redeemed.get(&(payer, id))?.payment()?;
        Some(Use { payer, key: IntentKey::of_evm_nonce(&id)?, token, destination, amount, is_paid: true })
    };
    used.into_iter().filter_map(of_use).collect()
}

/// The code of a wallet for which `implementation` acts.
pub(super) fn designator(implementation: &[u8; 20]) -> Vec<u8> {
    [DESIGNATOR.as_slice(), implementation].concat()
}

impl Code {
    /// What is wrong with this code; `None` where it is the listed one.
    pub(super) fn defect(&self, code: &[u8]) -> Option<&'static str> {
        if code.is_empty() {
            return Some("has no code");
        }
        let code = if self.has_metadata { without_metadata(code) } else { Some(code) };
        let Some(code) = code else { return Some("has other code") };
        let mut code = code.to_vec();
        for (at, word) in &self.trusted {
            match code.get_mut(*at..at + 32) {
                Some(there) if there == word => there.fill(0),
                Some(_) | None => return Some("trusts another address, or has other code"),
            }
        }
        for at in self.own {
            match code.get_mut(*at..at + 32) {
                Some(there) => there.fill(0),
                None => return Some("has other code"),
            }
        }
        (keccak256(&code) != self.hash).then_some("has other code")
    }
}

/// Code without the metadata that solc puts behind it: CBOR, and its length in two bytes.
fn without_metadata(code: &[u8]) -> Option<&[u8]> {
    let (rest, length) = code.split_last_chunk::<2>()?;
    rest.get(..rest.len().checked_sub(u16::from_be_bytes(*length).into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of 80 bytes with a trusted word at 8 and one of its own at 44, and metadata of 3 bytes behind it.
    fn code(trusted: u8, own: u8, body: u8, metadata: u8) -> Vec<u8> {
        let mut code = vec![body; 80];
        code[8..40].fill(trusted);
        code[44..76].fill(own);
        code.extend([metadata, metadata, metadata, 0, 3]);
        code
    }

    #[test]
    fn code_is_the_listed_one_whatever_its_metadata_and_its_own_words_and_never_with_another_trusted_address() {
        let mut bare = vec![7; 80];
        bare[8..40].fill(0);
        bare[44..76].fill(0);
        let trusted = vec![(8, [1; 32])];
        let hash = keccak256(bare);
        let listed = Code { name: "x", address: [0; 20], has_metadata: true, trusted, own: &[44], hash };
        for (good, what) in [(code(1, 2, 7, 0xa1), "as listed"), (code(1, 9, 7, 0xb2), "of another chain")] {
            assert_eq!(listed.defect(&good), None, "{what}");
        }
        let mut longer = code(1, 2, 7, 0);
        longer.insert(78, 7);
        let cases = [
            (Vec::new(), "has no code"),
            (vec![0], "has other code"),
            (vec![0xff, 0xff], "has other code"),
            (code(3, 2, 7, 0), "trusts another address, or has other code"),
            (code(1, 2, 8, 0), "has other code"),
            (longer, "has other code"),
            (code(1, 2, 7, 0)[..20].to_vec(), "trusts another address, or has other code"),
            (designator(&[1; 20]), "has other code"),
        ];
        for (bad, expected) in cases {
            let defect = listed.defect(&bad).unwrap_or_else(|| panic!("{expected}"));
            assert!(defect.contains("other code") || defect == expected, "{defect}: {expected}");
        }
    }
}
