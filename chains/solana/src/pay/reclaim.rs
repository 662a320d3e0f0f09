//! The transaction that takes back what guards hold: a v0 message that the sponsor and each guard's payer sign.
//!
//! Its instructions: compute limit and price, then a `transferWithSeed` of all that each guard holds, to the sponsor. A
//! guard without lamports is there no more, so a second such transaction fails as a whole and costs its fee. Promise: the
//! bytes follow from the request alone. Deliberately not here: whether a guard is still needed.

use landfall_chain::{Intent, RECLAIM_GUARDS_MAX, Reclaim, TxId};
use solana_sdk::hash::Hash;
use solana_sdk::instruction::Instruction;
use solana_sdk::message::{VersionedMessage, v0};
use solana_sdk::pubkey::Pubkey;

use crate::pay::guard::{SYSTEM, signer, writable};
use crate::pay::{PayError, fees, solana};

/// `SystemInstruction::TransferWithSeed` (solana-system-interface `instruction.rs`).
const TRANSFER_WITH_SEED: u32 = 11;
/// Nobody waits for it: it offers nothing for its place.
const COMPUTE_PRICE: u64 = 0;

/// A transaction that nobody has signed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsignedReclaim {
    message: Vec<u8>,
    signers: Vec<[u8; 32]>,
}

/// The transaction that `reclaim` stands for.
///
/// # Errors
/// What Solana cannot carry.
pub fn reclaim(reclaim: &Reclaim) -> Result<UnsignedReclaim, PayError> {
    let Reclaim { sponsor, guards, blockhash, compute_limit } = reclaim;
    let sponsor = solana(sponsor)?;
    let count = guards.len();
    if count == 0 || count > RECLAIM_GUARDS_MAX {
        return Err(PayError::Message(format!("{count} guards, expected are 1 to {RECLAIM_GUARDS_MAX}")));
    }
    let mut calls = fees::budget(*compute_limit, COMPUTE_PRICE).to_vec();
    for (intent, lamports) in guards {
        calls.push(taken_back(&sponsor, intent, *lamports)?);
    }
    let blockhash = Hash::new_from_array(blockhash.0);
    let message = v0::Message::try_compile(&Pubkey::new_from_array(sponsor), &calls, &[], blockhash);
    let message = message.map_err(|error| PayError::Message(error.to_string()))?;
    let signers = usize::from(message.header.num_required_signatures);
    let signers = message.account_keys.iter().take(signers).map(Pubkey::to_bytes).collect();
    Ok(UnsignedReclaim { message: VersionedMessage::V0(message).serialize(), signers })
}

impl UnsignedReclaim {
    /// What all of them sign.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Whose keys sign it, in their order: the sponsor's first.
    pub fn signers(&self) -> &[[u8; 32]] {
        &self.signers
    }

    /// The transaction as it is sent, and its id, which is the sponsor's signature; `None` where not all have signed.
    pub fn signed(self, signatures: &[[u8; 64]]) -> Option<(Vec<u8>, TxId)> {
        let id = *signatures.first().filter(|_| signatures.len() == self.signers.len())?;
        let mut raw = vec![u8::try_from(signatures.len()).ok()?];
        signatures.iter().for_each(|signature| raw.extend(signature));
        raw.extend(&self.message);
        Some((raw, TxId::Solana(id)))
    }
}

fn taken_back(sponsor: &[u8; 32], intent: &Intent, lamports: u64) -> Result<Instruction, PayError> {
    let payer = solana(&intent.payer)?;
    let guard = intent.guard().ok_or(PayError::OtherRoute(intent.route.name()))?;
    if payer == *sponsor {
        return Err(PayError::Message("the payer would pay for it".to_owned()));
    }
    if lamports == 0 {
        return Err(PayError::Message("a guard without lamports is none".to_owned()));
    }
    let seed = intent.key().solana_seed();
    let mut data = TRANSFER_WITH_SEED.to_le_bytes().to_vec();
    data.extend(lamports.to_le_bytes());
    data.extend((seed.len() as u64).to_le_bytes());
    data.extend(seed.as_bytes());
    data.extend(SYSTEM.to_bytes());
    let accounts = vec![writable(&solana(&guard)?), signer(&payer, false), writable(sponsor)];
    Ok(Instruction { program_id: SYSTEM, accounts, data })
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Address, BlockHash, Route};
    use solana_sdk::signature::{Keypair, Signer};

    use super::*;
    use crate::pay::guard::tests::intent;

    /// The most that a packet may have (agave: `PACKET_DATA_SIZE`).
    const PACKET_BYTES: usize = 1_232;

    /// Of so many wallets.
    fn wanted(payers: &[[u8; 32]]) -> Reclaim {
        let of = |(nth, payer): (u8, &[u8; 32])| {
            let mut intent = intent(*payer, nth % 2 == 1);
            intent.transfer_id[0] = nth;
            (intent, 890_880 + u64::from(nth))
        };
        let guards = (0..).zip(payers).map(of).collect();
        let (sponsor, blockhash) = (Address::Solana([1; 32]), BlockHash([8; 32]));
        Reclaim { sponsor, guards, blockhash, compute_limit: 1_500 }
    }

    #[test]
    fn it_moves_all_that_each_guard_holds_to_the_sponsor_and_fits_with_four_wallets() {
        let payers: Vec<[u8; 32]> = (0..4).map(|_| Keypair::new().pubkey().to_bytes()).collect();
        let wanted = wanted(&payers);
        let unsigned = reclaim(&wanted).unwrap();
        assert_eq!(unsigned.signers()[0], [1; 32]);
        let mut others = unsigned.signers()[1..].to_vec();
        let mut expected = payers.clone();
        others.sort_unstable();
        expected.sort_unstable();
        assert_eq!(others, expected);
        let signatures = [[7; 64]; 5];
        assert_eq!(unsigned.clone().signed(&signatures[..4]), None, "one is missing");
        let (raw, id) = unsigned.signed(&signatures).unwrap();
        assert!(raw.len() <= PACKET_BYTES, "{}", raw.len());
        assert_eq!(id, TxId::Solana([7; 64]));
        let seed = wanted.guards[0].0.key().solana_seed();
        let call = taken_back(&[1; 32], &wanted.guards[0].0, 890_880).unwrap();
        let head = [&[11, 0, 0, 0][..], &890_880_u64.to_le_bytes(), &32_u64.to_le_bytes(), seed.as_bytes()].concat();
        assert_eq!(call.data, [head, vec![0; 32]].concat());
        let named: Vec<[u8; 32]> = call.accounts.iter().map(|account| account.pubkey.to_bytes()).collect();
        let guard = <[u8; 32]>::try_from(wanted.guards[0].0.guard().unwrap().as_bytes()).unwrap();
        assert_eq!(named, [guard, payers[0], [1; 32]]);
        let is_signer: Vec<bool> = call.accounts.iter().map(|account| account.is_signer).collect();
        assert_eq!(is_signer, [false, true, false]);
    }

    #[test]
    fn a_wallet_signs_once_for_all_of_its_guards() {
        let unsigned = reclaim(&wanted(&[[9; 32]; 4])).unwrap();
        assert_eq!(unsigned.signers(), [[1; 32], [9; 32]]);
    }

    #[test]
    fn what_takes_nothing_back_is_refused_by_what_is_wrong() {
        let of = |change: &dyn Fn(&mut Reclaim)| {
            let mut wanted = wanted(&[[9; 32], [10; 32]]);
            change(&mut wanted);
            reclaim(&wanted).unwrap_err().to_string()
        };
        let erc3009 = Route::Erc3009 { name: String::new(), version: String::new() };
        let cases = [
            (of(&|it| it.guards.clear()), "0 guards, expected are 1 to 4"),
            (of(&|it| it.guards = vec![it.guards[0].clone(); 5]), "5 guards, expected are 1 to 4"),
            (of(&|it| it.guards[1].1 = 0), "a guard without lamports is none"),
            (of(&|it| it.sponsor = it.guards[0].0.payer), "the payer would pay for it"),
            (of(&|it| it.guards[0].0.route = erc3009.clone()), "route erc3009 is none of Solana"),
            (of(&|it| it.sponsor = Address::Evm([1; 20])), "is not of Solana"),
        ];
        for (why, expected) in cases {
            assert!(why.contains(expected), "{why}, not {expected}");
        }
    }
}
