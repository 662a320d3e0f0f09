//! The few instructions that the payments need, byte by byte.
//!
//! Written from the programs' own interfaces (system, token, Token-2022, associated token account, lookup table), so
//! that nothing of what Landfall reads instructions with is used to make them. They decide nothing: what they moved is
//! for the chain to say.

use solana_sdk::instruction::{AccountMeta, Instruction};
use solana_sdk::pubkey;
use solana_sdk::pubkey::Pubkey;

pub(crate) const SYSTEM: Pubkey = pubkey!("11111111111111111111111111111111");
pub(crate) const TOKEN: Pubkey = pubkey!("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA");
pub(crate) const TOKEN_2022: Pubkey = pubkey!("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb");
pub(crate) const WRAPPED_SOL: Pubkey = pubkey!("So11111111111111111111111111111111111111112");
const ATA: Pubkey = pubkey!("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL");
const MEMO: Pubkey = pubkey!("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr");
const LOOKUP_TABLE: Pubkey = pubkey!("AddressLookupTab1e1111111111111111111111111");

pub(crate) const TOKEN_ACCOUNT_BYTES: u64 = 165;
pub(crate) const MINT_BYTES: u64 = 82;
/// A mint with extensions is as long as an account, then its kind, then each extension behind its type and length.
const EXTENDED_MINT_BYTES: u64 = TOKEN_ACCOUNT_BYTES + 1;
pub(crate) const FEE_MINT_BYTES: u64 = EXTENDED_MINT_BYTES + 4 + 108;
pub(crate) const DELEGATE_MINT_BYTES: u64 = EXTENDED_MINT_BYTES + 4 + 32;
/// The kind of authority that an account's owner is.
const ACCOUNT_OWNER: u8 = 2;

/// A token: its mint, and the program that keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) mint: Pubkey,
    pub(crate) program: Pubkey,
    pub(crate) decimals: u8,
}

impl Token {
    /// Where `owner`'s belong.
    pub(crate) fn ata(&self, owner: &Pubkey) -> Pubkey {
        let seeds = [owner.as_ref(), self.program.as_ref(), self.mint.as_ref()];
        Pubkey::find_program_address(&seeds, &ATA).0
    }

    /// Makes that account, unless it is there; `payer` pays its rent.
    pub(crate) fn make_ata(&self, payer: &Pubkey, owner: &Pubkey) -> Instruction {
        let accounts = vec![
            AccountMeta::new(*payer, true),
            AccountMeta::new(self.ata(owner), false),
            AccountMeta::new_readonly(*owner, false),
            AccountMeta::new_readonly(self.mint, false),
            AccountMeta::new_readonly(SYSTEM, false),
            AccountMeta::new_readonly(self.program, false),
        ];
        Instruction { program_id: ATA, accounts, data: vec![1] }
    }

    /// Room for the extension in the associated account of `owner`, and a memo for each payment from then on.
    pub(crate) fn demand_memos(&self, payer: &Pubkey, owner: &Pubkey) -> [Instruction; 2] {
        let (account, signer) = (AccountMeta::new(self.ata(owner), false), AccountMeta::new_readonly(*owner, true));
        let system = AccountMeta::new_readonly(SYSTEM, false);
        let room = vec![account.clone(), AccountMeta::new(*payer, true), system, signer.clone()];
        [self.call(room, vec![29, 8, 0]), self.call(vec![account, signer], vec![30, 0])]
    }

    pub(crate) fn initialize_mint(&self, authority: &Pubkey) -> Instruction {
        let data = [&[20, self.decimals][..], authority.as_ref(), &[0]].concat();
        self.call(vec![AccountMeta::new(self.mint, false)], data)
    }

    /// Before [`Token::initialize_mint`]: so much of each transfer stays behind.
    pub(crate) fn initialize_fee(&self, authority: &Pubkey, basis_points: u16) -> Instruction {
        let (points, most) = (basis_points.to_le_bytes(), u64::MAX.to_le_bytes());
        let data = [&[26, 0, 1][..], authority.as_ref(), &[1], authority.as_ref(), &points, &most].concat();
        self.call(vec![AccountMeta::new(self.mint, false)], data)
    }

    /// Before [`Token::initialize_mint`]: `delegate` may move everybody's.
    pub(crate) fn initialize_permanent_delegate(&self, delegate: &Pubkey) -> Instruction {
        self.call(vec![AccountMeta::new(self.mint, false)], [&[35][..], delegate.as_ref()].concat())
    }

    pub(crate) fn initialize_account(&self, account: &Pubkey, owner: &Pubkey) -> Instruction {
        let accounts = vec![AccountMeta::new(*account, false), AccountMeta::new_readonly(self.mint, false)];
        self.call(accounts, [&[18][..], owner.as_ref()].concat())
    }

    pub(crate) fn mint_to(&self, account: &Pubkey, authority: &Pubkey, amount: u64) -> Instruction {
        let accounts = vec![
            AccountMeta::new(self.mint, false),
            AccountMeta::new(*account, false),
            AccountMeta::new_readonly(*authority, true),
        ];
        self.call(accounts, [&[7][..], &amount.to_le_bytes()].concat())
    }

    /// `transferChecked`: from one account to another, as `authority` says.
    pub(crate) fn transfer(&self, from: &Pubkey, to: &Pubkey, authority: &Pubkey, amount: u64) -> Instruction {
        let accounts = vec![
            AccountMeta::new(*from, false),
            AccountMeta::new_readonly(self.mint, false),
            AccountMeta::new(*to, false),
            AccountMeta::new_readonly(*authority, true),
        ];
        self.call(accounts, [&[12][..], &amount.to_le_bytes(), &[self.decimals]].concat())
    }

    /// Hands the account to another owner, with all that is in it.
    pub(crate) fn hand_over(&self, account: &Pubkey, owner: &Pubkey, to: &Pubkey) -> Instruction {
        let accounts = vec![AccountMeta::new(*account, false), AccountMeta::new_readonly(*owner, true)];
        self.call(accounts, [&[6, ACCOUNT_OWNER, 1][..], to.as_ref()].concat())
    }

    /// Closes an empty account; its lamports go to `to`.
    pub(crate) fn close(&self, account: &Pubkey, to: &Pubkey, owner: &Pubkey) -> Instruction {
        let accounts = vec![
            AccountMeta::new(*account, false),
            AccountMeta::new(*to, false),
            AccountMeta::new_readonly(*owner, true),
        ];
        self.call(accounts, vec![9])
    }

    /// Has the program see lamports that came to an account of wrapped SOL.
    pub(crate) fn sync_native(&self, account: &Pubkey) -> Instruction {
        self.call(vec![AccountMeta::new(*account, false)], vec![17])
    }

    fn call(&self, accounts: Vec<AccountMeta>, data: Vec<u8>) -> Instruction {
        Instruction { program_id: self.program, accounts, data }
    }
}

pub(crate) fn transfer(from: &Pubkey, to: &Pubkey, lamports: u64) -> Instruction {
    let accounts = vec![AccountMeta::new(*from, true), AccountMeta::new(*to, false)];
    let data = [&2_u32.to_le_bytes()[..], &lamports.to_le_bytes()].concat();
    Instruction { program_id: SYSTEM, accounts, data }
}

pub(crate) fn create_account(from: &Pubkey, new: &Pubkey, lamports: u64, bytes: u64, owner: &Pubkey) -> Instruction {
    let accounts = vec![AccountMeta::new(*from, true), AccountMeta::new(*new, true)];
    let numbers = [&0_u32.to_le_bytes()[..], &lamports.to_le_bytes(), &bytes.to_le_bytes()].concat();
    Instruction { program_id: SYSTEM, accounts, data: [&numbers, owner.as_ref()].concat() }
}

pub(crate) fn memo(text: &str) -> Instruction {
    Instruction { program_id: MEMO, accounts: Vec::new(), data: text.as_bytes().to_vec() }
}

/// Makes a table of `payer`'s, named after a recent slot; its address.
pub(crate) fn create_lookup_table(payer: &Pubkey, slot: u64) -> (Pubkey, Instruction) {
    let (table, bump) = Pubkey::find_program_address(&[payer.as_ref(), &slot.to_le_bytes()], &LOOKUP_TABLE);
    let data = [&0_u32.to_le_bytes()[..], &slot.to_le_bytes(), &[bump]].concat();
    (table, Instruction { program_id: LOOKUP_TABLE, accounts: table_accounts(&table, payer), data })
}

pub(crate) fn extend_lookup_table(table: &Pubkey, payer: &Pubkey, keys: &[Pubkey]) -> Instruction {
    let mut data = [&2_u32.to_le_bytes()[..], &u64::try_from(keys.len()).unwrap().to_le_bytes()].concat();
    data.extend(keys.iter().flat_map(|key| key.to_bytes()));
    Instruction { program_id: LOOKUP_TABLE, accounts: table_accounts(table, payer), data }
}

fn table_accounts(table: &Pubkey, payer: &Pubkey) -> Vec<AccountMeta> {
    vec![
        AccountMeta::new(*table, false),
        AccountMeta::new_readonly(*payer, true),
        AccountMeta::new(*payer, true),
        AccountMeta::new_readonly(SYSTEM, false),
    ]
}
