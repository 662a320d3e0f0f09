//! The instructions that move value, of the system program and the two token programs: from which account to which.
//!
//! In the order in which they ran: each instruction, then those that it called; of a batch (p-token) those within.
//! Unknown ones are skipped: this names senders, and a sender that is not found is no money lost. Layouts are those of
//! the programs' own sources: solana-system-interface `instruction.rs`, p-token `instruction.rs`, token-2022
//! `extension/transfer_fee/instruction.rs`.

use crate::ata::{SPL_TOKEN, TOKEN_2022};
use crate::error::Unusable;
use crate::tx::Tx;
use crate::wire::{WireInstruction, WireProgram};

const SYSTEM: &str = "11111111111111111111111111111111";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Lamports,
    Tokens,
    /// `from` is the mint authority.
    Minted,
}

/// Value that an instruction says to have sent; accounts by their index in the transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) kind: Kind,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// To weigh senders against each other; 0 where the instruction does not say.
    pub(crate) amount: u64,
    /// For an account that was closed by this, who had it closed: its owner, or whom the owner allowed to.
    pub(crate) closed_by: Option<usize>,
}

/// Everything that was sent.
///
/// # Errors
/// An instruction whose accounts the transaction does not have.
pub(crate) fn all_sent(tx: &Tx<'_>, program: &WireProgram<'_>) -> Result<Vec<Sent>, Unusable> {
    let called = program.meta.inner_instructions.as_deref().unwrap_or_default();
    let mut sent = Vec::new();
    for (index, instruction) in program.transaction.message.instructions.iter().enumerate() {
        let inner = called.iter().filter(|inner| inner.index == index).flat_map(|inner| &inner.instructions);
        for instruction in std::iter::once(instruction).chain(inner) {
            take(tx, instruction, &mut sent)?;
        }
    }
    Ok(sent)
}

fn take(tx: &Tx<'_>, instruction: &WireInstruction<'_>, sent: &mut Vec<Sent>) -> Result<(), Unusable> {
    let accounts = instruction.accounts.as_slice();
    if accounts.iter().any(|account| *account >= tx.keys.len()) {
        return Err(Unusable::Instruction);
    }
    let program = tx.keys.get(instruction.program_id_index).ok_or(Unusable::Instruction)?;
    let data = bs58::decode(instruction.data).into_vec().map_err(|_| Unusable::Instruction)?;
    match *program {
        SYSTEM => sent.extend(of_system(accounts, &data)),
        SPL_TOKEN | TOKEN_2022 if data.first() == Some(&token::BATCH) => of_batch(accounts, &data[1..], sent),
        SPL_TOKEN | TOKEN_2022 => sent.extend(of_token(accounts, &data)),
        _ => {}
    }
    Ok(())
}

mod system {
    pub(super) const CREATE_ACCOUNT: u32 = 0;
    pub(super) const TRANSFER: u32 = 2;
    pub(super) const CREATE_ACCOUNT_WITH_SEED: u32 = 3;
    pub(super) const WITHDRAW_NONCE_ACCOUNT: u32 = 5;
    pub(super) const TRANSFER_WITH_SEED: u32 = 11;
}

mod token {
    pub(super) const TRANSFER: u8 = 3;
    pub(super) const MINT_TO: u8 = 7;
    pub(super) const CLOSE_ACCOUNT: u8 = 9;
    pub(super) const TRANSFER_CHECKED: u8 = 12;
    pub(super) const MINT_TO_CHECKED: u8 = 14;
    pub(super) const TRANSFER_FEE_EXTENSION: u8 = 26;
    pub(super) const TRANSFER_CHECKED_WITH_FEE: u8 = 1;
    pub(super) const WITHDRAW_EXCESS_LAMPORTS: u8 = 38;
    pub(super) const UNWRAP_LAMPORTS: u8 = 45;
    pub(super) const BATCH: u8 = 255;
}

fn of_system(accounts: &[usize], data: &[u8]) -> Option<Sent> {
    let (number, rest) = data.split_first_chunk::<4>()?;
    let (to, rest) = match u32::from_le_bytes(*number) {
        system::CREATE_ACCOUNT | system::TRANSFER | system::WITHDRAW_NONCE_ACCOUNT => (1, rest),
        system::TRANSFER_WITH_SEED => (2, rest),
        system::CREATE_ACCOUNT_WITH_SEED => {
            let (length, seed) = rest.get(32..)?.split_first_chunk::<8>()?;
            (1, seed.get(usize::try_from(u64::from_le_bytes(*length)).ok()?..)?)
        }
        _ => return None,
    };
    let (from, to, amount) = (*accounts.first()?, *accounts.get(to)?, amount(rest)?);
    Some(Sent { kind: Kind::Lamports, from, to, amount, closed_by: None })
}

fn of_token(accounts: &[usize], data: &[u8]) -> Option<Sent> {
    let (number, rest) = data.split_first()?;
    let (kind, from, to, amount) = match *number {
        token::TRANSFER => (Kind::Tokens, 0, 1, amount(rest)?),
        token::TRANSFER_CHECKED => (Kind::Tokens, 0, 2, amount(rest)?),
        token::TRANSFER_FEE_EXTENSION if rest.first() == Some(&token::TRANSFER_CHECKED_WITH_FEE) => {
            (Kind::Tokens, 0, 2, amount(&rest[1..])?)
        }
        token::MINT_TO | token::MINT_TO_CHECKED => (Kind::Minted, 2, 1, amount(rest)?),
        token::CLOSE_ACCOUNT | token::WITHDRAW_EXCESS_LAMPORTS => (Kind::Lamports, 0, 1, 0),
        token::UNWRAP_LAMPORTS => (Kind::Lamports, 0, 1, rest.get(1..).and_then(amount).unwrap_or_default()),
        _ => return None,
    };
    let closed_by = if *number == token::CLOSE_ACCOUNT { Some(*accounts.get(2)?) } else { None };
    Some(Sent { kind, from: *accounts.get(from)?, to: *accounts.get(to)?, amount, closed_by })
}

/// A batch: for each instruction the number of its accounts, the length of its data, its data. The accounts stand one
/// after the other in those of the batch. It cannot hold another batch.
fn of_batch(mut accounts: &[usize], mut data: &[u8], sent: &mut Vec<Sent>) {
    while let [count, length, rest @ ..] = data {
        let (count, length) = (usize::from(*count), usize::from(*length));
        let (Some((own, later)), Some((instruction, rest))) =
            (accounts.split_at_checked(count), rest.split_at_checked(length))
        else {
            return;
        };
        sent.extend(of_token(own, instruction));
        (accounts, data) = (later, rest);
    }
}

fn amount(data: &[u8]) -> Option<u64> {
    data.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}
