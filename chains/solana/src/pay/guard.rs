//! The transaction that makes a guard and pays: a v0 message that the sponsor and the payer sign. Of a refill both are the
//! treasury, which signs alone.
//!
//! Its instructions: `createAccountWithSeed` of the guard, with the payer as base, so that the payer's signature is what
//! makes it; compute limit and price; then what pays. The guard is made once: a second transaction fails with its first
//! instruction, whole, whoever signed it and with whatever blockhash. Promise: the bytes follow from the request alone.

use landfall_chain::{Address, AssetId, Guarded, GuardedRefill, TxId, U256};
use solana_sdk::hash::Hash;
use solana_sdk::instruction::{AccountMeta, Instruction};
use solana_sdk::message::{VersionedMessage, v0};
use solana_sdk::pubkey::Pubkey;

use crate::pay::{PayError, fees, solana, token};

pub(super) const SYSTEM: Pubkey = Pubkey::new_from_array([0; 32]);
/// `SystemInstruction::CreateAccountWithSeed` (solana-system-interface `instruction.rs`).
const CREATE_ACCOUNT_WITH_SEED: u32 = 3;

/// A transaction that nobody has signed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsignedGuarded {
    message: Vec<u8>,
}

/// A refill that the treasury has not signed yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsignedRefill {
    message: Vec<u8>,
}

/// The transaction that `guarded` stands for.
///
/// # Errors
/// What Solana cannot carry.
pub fn guarded(guarded: &Guarded) -> Result<UnsignedGuarded, PayError> {
    if guarded.sponsor == guarded.intent.payer {
        return Err(PayError::Message("the payer would pay for it".to_owned()));
    }
    Ok(UnsignedGuarded { message: message(guarded, &[&guarded.sponsor, &guarded.intent.payer])? })
}

/// The transaction that `refill` stands for.
///
/// # Errors
/// What Solana cannot carry.
pub fn refill(refill: &GuardedRefill) -> Result<UnsignedRefill, PayError> {
    let guarded = refill.guarded();
    if guarded.intent.destination == guarded.sponsor {
        return Err(PayError::Message("the treasury would refill itself".to_owned()));
    }
    Ok(UnsignedRefill { message: message(&guarded, &[&guarded.sponsor])? })
}

/// The transaction with signatures of zeros, as it is tried; that of a refill where the payer pays for it.
pub(super) fn unsigned(guarded: &Guarded) -> Result<Vec<u8>, PayError> {
    let Guarded { sponsor, intent, .. } = guarded;
    if *sponsor == intent.payer {
        return Ok(transaction(&message(guarded, &[sponsor])?, [&[0; 64]]));
    }
    Ok(transaction(&message(guarded, &[sponsor, &intent.payer])?, [&[0; 64]; 2]))
}

/// The message that these keys sign, in their order.
fn message(guarded: &Guarded, signers: &[&Address]) -> Result<Vec<u8>, PayError> {
    let Guarded { sponsor, intent, terms } = guarded;
    let (sponsor, payer) = (solana(sponsor)?, solana(&intent.payer)?);
    // It would succeed, make nothing, and refuse no second payment.
    if terms.rent == 0 {
        return Err(PayError::Message("a guard without lamports is none".to_owned()));
    }
    // Blocks show balances: of two accounts that came into being with the same sum, nobody could say which is the guard.
    if intent.asset == AssetId::Native && intent.amount == U256::from(terms.rent) {
        return Err(PayError::Message("the guard would be made with what is paid".to_owned()));
    }
    let mut calls = vec![guard(&sponsor, &payer, &intent.key().solana_seed(), intent.key().guard(&payer), terms.rent)];
    calls.extend(fees::budget(terms.compute_limit, terms.compute_price));
    calls.extend(token::payment(&sponsor, intent, terms)?);
    let blockhash = Hash::new_from_array(terms.blockhash.0);
    let message = v0::Message::try_compile(&Pubkey::new_from_array(sponsor), &calls, &[], blockhash);
    let message = message.map_err(|error| PayError::Message(error.to_string()))?;
    let must_sign = usize::from(message.header.num_required_signatures);
    let must_sign: Vec<Address> =
        message.account_keys.iter().take(must_sign).map(|key| Address::Solana(key.to_bytes())).collect();
    if !must_sign.iter().eq(signers.iter().copied()) {
        let count = must_sign.len();
        return Err(PayError::Message(format!("{count} keys must sign it, expected are sponsor and payer")));
    }
    Ok(VersionedMessage::V0(message).serialize())
}

/// A transaction as it is sent: how many signatures there are, each of them, and the message.
fn transaction<const COUNT: usize>(message: &[u8], signatures: [&[u8; 64]; COUNT]) -> Vec<u8> {
    let count = u8::try_from(COUNT).expect("one or two sign");
    let mut raw = Vec::with_capacity(1 + 64 * COUNT + message.len());
    raw.push(count);
    signatures.iter().for_each(|signature| raw.extend(*signature));
    raw.extend(message);
    raw
}

impl UnsignedGuarded {
    /// What both keys sign.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The transaction as it is sent, and its id, which is the sponsor's signature.
    pub fn signed(self, by_sponsor: &[u8; 64], by_payer: &[u8; 64]) -> (Vec<u8>, TxId) {
        (transaction(&self.message, [by_sponsor, by_payer]), TxId::Solana(*by_sponsor))
    }
}

impl UnsignedRefill {
    /// What the treasury signs.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The transaction as it is sent, and its id, which is the treasury's signature.
    pub fn signed(self, by_treasury: &[u8; 64]) -> (Vec<u8>, TxId) {
        (transaction(&self.message, [by_treasury]), TxId::Solana(*by_treasury))
    }
}

fn guard(sponsor: &[u8; 32], payer: &[u8; 32], seed: &str, guard: [u8; 32], rent: u64) -> Instruction {
    let mut data = CREATE_ACCOUNT_WITH_SEED.to_le_bytes().to_vec();
    data.extend(payer);
    data.extend((seed.len() as u64).to_le_bytes());
    data.extend(seed.as_bytes());
    data.extend(rent.to_le_bytes());
    // It holds no data, and stays the system program's.
    data.extend(0_u64.to_le_bytes());
    data.extend(SYSTEM.to_bytes());
    let accounts = vec![signer(sponsor, true), writable(&guard), signer(payer, false)];
    Instruction { program_id: SYSTEM, accounts, data }
}

pub(super) fn signer(key: &[u8; 32], is_writable: bool) -> AccountMeta {
    AccountMeta { pubkey: Pubkey::new_from_array(*key), is_signer: true, is_writable }
}

pub(super) fn writable(key: &[u8; 32]) -> AccountMeta {
    AccountMeta::new(Pubkey::new_from_array(*key), false)
}

pub(super) fn readonly(key: &[u8; 32]) -> AccountMeta {
    AccountMeta::new_readonly(Pubkey::new_from_array(*key), false)
}

#[cfg(test)]
pub(super) mod tests {
    use landfall_chain::{BlockHash, GuardTerms, Intent, Refill, Route};
    use solana_sdk::signature::{Keypair, Signer};

    use super::*;
    use crate::ata::TokenProgram;

    pub(crate) const MINT: [u8; 32] = [3; 32];
    const DEVNET: &str = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1";

    pub(crate) fn intent(payer: [u8; 32], is_token: bool) -> Intent {
        let program = is_token.then(|| Address::Solana(TokenProgram::Token2022.key()));
        Intent {
            transfer_id: hex("bac872c096568527b18ffc8f02a10278"),
            chain_ref: DEVNET.to_owned(),
            route: Route::Guard { program, decimals: if is_token { 6 } else { 9 } },
            asset: if is_token { AssetId::Token(Address::Solana(MINT)) } else { AssetId::Native },
            payer: Address::Solana(payer),
            destination: Address::Solana([2; 32]),
            amount: U256::from(5),
            deadline: 1_800_000_000,
        }
    }

    fn hex(text: &str) -> [u8; 16] {
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        std::array::from_fn(byte)
    }

    pub(crate) fn terms() -> GuardTerms {
        GuardTerms {
            blockhash: BlockHash([8; 32]),
            rent: 890_880,
            compute_limit: 900,
            compute_price: 7_000,
            memo: false,
            makes_account: false,
        }
    }

    /// A token's goes to an account that it makes.
    fn wanted(sponsor: [u8; 32], payer: [u8; 32], is_token: bool) -> Guarded {
        let terms = GuardTerms { makes_account: is_token, ..terms() };
        Guarded { sponsor: Address::Solana(sponsor), intent: intent(payer, is_token), terms }
    }

    #[test]
    fn a_guard_of_no_lamports_is_refused_for_it_would_refuse_no_second_payment() {
        for is_token in [false, true] {
            let mut nothing = wanted([1; 32], [9; 32], is_token);
            assert!(guarded(&nothing).is_ok());
            nothing.terms.rent = 0;
            let refused = guarded(&nothing).unwrap_err().to_string();
            assert!(refused.contains("a guard without lamports is none"), "{refused}");
        }
    }

    #[test]
    fn the_guard_is_the_account_that_solanas_own_code_derives_of_the_vector() {
        let payer = Pubkey::new_from_array([9; 32]);
        let intent = intent([9; 32], false);
        assert_eq!(intent.key().solana_seed(), "ubIo8TJMcOZxXEBs6tdNJgvk7bRv0ton");
        let expected = Pubkey::create_with_seed(&payer, "ubIo8TJMcOZxXEBs6tdNJgvk7bRv0ton", &SYSTEM).unwrap();
        assert_eq!(intent.guard(), Some(Address::Solana(expected.to_bytes())));
    }

    #[test]
    fn a_transaction_makes_the_guard_first_and_is_signed_by_sponsor_and_payer() {
        let (sponsor, payer) = (Keypair::new(), Keypair::new());
        for (is_token, calls) in [(false, 4), (true, 5)] {
            let wanted = wanted(sponsor.pubkey().to_bytes(), payer.pubkey().to_bytes(), is_token);
            let unsigned = guarded(&wanted).unwrap();
            assert_eq!(guarded(&wanted).unwrap(), unsigned, "equal requests are equal bytes");
            let [by_sponsor, by_payer] =
                [&sponsor, &payer].map(|key| <[u8; 64]>::from(key.sign_message(unsigned.message())));
            let message = unsigned.message().to_vec();
            let (raw, id) = unsigned.signed(&by_sponsor, &by_payer);
            assert_eq!(id, TxId::Solana(by_sponsor));
            assert_eq!(
                (raw[0], &raw[1..65], &raw[65..129], &raw[129..]),
                (2, &by_sponsor[..], &by_payer[..], &message[..])
            );
            // 0x80: version 0; two signers, of whom the payer of SOL is written to.
            assert_eq!(message[..2], [0x80, 2]);
            let message =
                v0::Message::try_compile(&sponsor.pubkey(), &reread(&wanted), &[], Hash::new_from_array([8; 32]))
                    .unwrap();
            assert_eq!(message.instructions.len(), calls);
            let first = &message.instructions[0];
            let key = |at: u8| message.account_keys[usize::from(at)];
            assert_eq!(key(first.program_id_index), SYSTEM);
            let guard = Pubkey::try_from(wanted.intent.guard().unwrap().as_bytes()).unwrap();
            let named: Vec<Pubkey> = first.accounts.iter().map(|at| key(*at)).collect();
            assert_eq!(named, [sponsor.pubkey(), guard, payer.pubkey()]);
            assert_eq!(message.header.num_readonly_signed_accounts, u8::from(is_token));
        }
    }

    #[test]
    fn a_refill_makes_the_guard_of_its_number_first_and_the_treasury_signs_alone() {
        let treasury = Keypair::new();
        let of = |nonce: u64, recipient: [u8; 32]| {
            let refill = Refill {
                chain_ref: DEVNET.to_owned(),
                number: 1,
                recipient: Address::Solana(recipient),
                amount: U256::from(5),
            };
            GuardedRefill { treasury: Address::Solana(treasury.pubkey().to_bytes()), refill, nonce, terms: terms() }
        };
        let wanted = of(7, [2; 32]);
        let unsigned = refill(&wanted).unwrap();
        let by_treasury = <[u8; 64]>::from(treasury.sign_message(unsigned.message()));
        let message = unsigned.message().to_vec();
        let (raw, id) = unsigned.signed(&by_treasury);
        assert_eq!(id, TxId::Solana(by_treasury));
        assert_eq!((raw[0], &raw[1..65], &raw[65..]), (1, &by_treasury[..], &message[..]));
        // The guard follows from the number, whatever is given to whom.
        let guard = |of: &GuardedRefill| of.guarded().intent.guard().unwrap();
        let holds = |message: &[u8], guard: Address| message.windows(32).any(|bytes| bytes == guard.as_bytes());
        assert!(holds(&message, guard(&wanted)));
        assert_eq!(guard(&of(7, [3; 32])), guard(&wanted));
        assert_ne!(guard(&of(8, [2; 32])), guard(&wanted));
        let itself = refill(&of(7, treasury.pubkey().to_bytes())).unwrap_err().to_string();
        assert!(itself.contains("the treasury would refill itself"), "{itself}");
        let mut nothing = wanted;
        nothing.terms.rent = 0;
        assert!(refill(&nothing).unwrap_err().to_string().contains("a guard without lamports is none"));
    }

    /// The calls once more, as the message has them.
    fn reread(wanted: &Guarded) -> Vec<Instruction> {
        let (sponsor, payer) = (solana(&wanted.sponsor).unwrap(), solana(&wanted.intent.payer).unwrap());
        let key = wanted.intent.key();
        let mut calls = vec![guard(&sponsor, &payer, &key.solana_seed(), key.guard(&payer), wanted.terms.rent)];
        calls.extend(fees::budget(wanted.terms.compute_limit, wanted.terms.compute_price));
        calls.extend(token::payment(&sponsor, &wanted.intent, &wanted.terms).unwrap());
        calls
    }

    #[test]
    fn each_thing_that_is_asked_for_changes_what_is_signed() {
        let good = wanted([1; 32], [9; 32], true);
        let terms = good.terms;
        let with_terms = |terms| Guarded { terms, ..good.clone() };
        let with_intent = |change: &dyn Fn(&mut Intent)| {
            let mut intent = good.intent.clone();
            change(&mut intent);
            Guarded { intent, ..good.clone() }
        };
        let others = [
            Guarded { sponsor: Address::Solana([4; 32]), ..good.clone() },
            with_terms(GuardTerms { blockhash: BlockHash([7; 32]), ..terms }),
            with_terms(GuardTerms { rent: 1, ..terms }),
            with_terms(GuardTerms { compute_limit: 1, ..terms }),
            with_terms(GuardTerms { compute_price: 1, ..terms }),
            with_terms(GuardTerms { memo: true, ..terms }),
            with_terms(GuardTerms { makes_account: false, ..terms }),
            with_intent(&|intent| intent.transfer_id = [7; 16]),
            with_intent(&|intent| intent.chain_ref = "solana:x".to_owned()),
            with_intent(&|intent| intent.asset = AssetId::Token(Address::Solana([5; 32]))),
            with_intent(&|intent| intent.payer = Address::Solana([6; 32])),
            with_intent(&|intent| intent.destination = Address::Solana([6; 32])),
            with_intent(&|intent| intent.amount = U256::from(6)),
            with_intent(&|intent| {
                let program = Some(Address::Solana(TokenProgram::SplToken.key()));
                intent.route = Route::Guard { program, decimals: 6 };
            }),
        ];
        let mut messages: Vec<Vec<u8>> =
            others.iter().chain([&good]).map(|one| guarded(one).unwrap().message().to_vec()).collect();
        messages.sort_unstable();
        messages.dedup();
        assert_eq!(messages.len(), others.len() + 1);
    }

    #[test]
    fn what_is_no_payment_of_solana_is_refused_by_what_is_wrong() {
        let good = wanted([1; 32], [9; 32], true);
        let evm = Address::Evm([1; 20]);
        let of = |intent: Intent| guarded(&Guarded { intent, ..good.clone() }).unwrap_err();
        let intent = good.intent.clone();
        let erc3009 = Route::Erc3009 { name: String::new(), version: String::new() };
        let (native, huge) = (AssetId::Native, U256::from(1_u128 << 64));
        assert_eq!(of(Intent { route: erc3009, ..intent.clone() }), PayError::OtherRoute("erc3009"));
        assert_eq!(of(Intent { asset: native, ..intent.clone() }), PayError::Program(native));
        let route = Route::Guard { program: Some(evm), decimals: 6 };
        assert_eq!(of(Intent { route, ..intent.clone() }), PayError::Program(intent.asset));
        assert_eq!(of(Intent { payer: evm, ..intent.clone() }), PayError::Foreign(evm));
        assert_eq!(of(Intent { destination: evm, ..intent.clone() }), PayError::Foreign(evm));
        assert_eq!(of(Intent { amount: huge, ..intent.clone() }), PayError::Amount(huge));
        let ambiguous = Intent { amount: U256::from(890_880), ..super::tests::intent([9; 32], false) };
        assert_eq!(of(ambiguous), PayError::Message("the guard would be made with what is paid".to_owned()));
        let own = Guarded { sponsor: intent.payer, ..good };
        assert_eq!(guarded(&own), Err(PayError::Message("the payer would pay for it".to_owned())));
    }
}
