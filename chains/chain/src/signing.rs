//! The interface of the signer: what may be asked of whoever holds the keys.
//!
//! Promises: a request says what is to be paid, and is never only a digest. The signer encodes it itself, judges it by
//! its own policy, and writes it to its journal before a signature leaves. Equal requests give equal bytes.

use std::fmt;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use crate::hashing::hash_of;
use crate::{
    Address, AssetId, Authorization, BlockHash, Family, Intent, Route, SignedAuthorization, SignedIntent, TxId, U256,
};

/// How many requests one call may have.
pub const SIGN_REQUESTS_MAX: usize = 64;

/// How many guards one transaction takes back: so many always fit, each of another wallet.
pub const RECLAIM_GUARDS_MAX: usize = 4;

/// No guard is taken back sooner behind the deadline of its transfer, whatever is asked for.
pub const GUARD_RETENTION_HOURS_MIN: u32 = 24;

/// What a guard may be made with, in lamports: what agave 4 asks of an account without data, which becomes less
/// (SIMD-0437), and one more where the same sum is paid.
pub const GUARD_RENT_MAX: u64 = 890_881;

/// How many entries of its journal a signer reads for one call.
pub const JOURNAL_ENTRIES_MAX: u64 = 1_000;

/// A call of the signer that is under way.
pub type Signing<'s, T> = Pin<Box<dyn Future<Output = Result<T, SignerUnavailable>> + Send + 's>>;

/// Which of the two seeds a key is derived of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Seed {
    /// Keys of accounts.
    Wallets,
    /// Keys that pay for transactions.
    Sponsors,
}

/// Where a key stands under its seed: `m/44'/60'/a'/0/i` on EVM, `m/44'/501'/a'/i'` on Solana.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct KeyPath {
    /// Whose seed.
    pub seed: Seed,
    /// Which kind of key.
    pub family: Family,
    /// `a`, below 2^31.
    pub account: u32,
    /// `i`, below 2^31.
    pub index: u32,
}

/// What is to be signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SignRequest {
    /// By the payer's own key.
    Intent {
        /// Where the payer's key stands.
        path: KeyPath,
        /// What it pays.
        intent: Intent,
        /// How many earlier deadlines it was asked for with: 0 of a first signature. A later deadline is signed only where
        /// the journal has as many.
        heals: usize,
    },
    /// By the payer's own key, so that an intent that was signed is never paid.
    Cancel {
        /// Where the payer's key stands.
        path: KeyPath,
        /// What was signed last of it.
        intent: Intent,
    },
    /// By a wallet's own key, so that a delegate acts for it.
    Authorization {
        /// Where the wallet's key stands.
        path: KeyPath,
        /// What it allows.
        authorization: Authorization,
    },
    /// By a wallet's own key, so that no code acts for it any more.
    Clear {
        /// Where the wallet's key stands.
        path: KeyPath,
        /// [`Authorization::clearing`].
        clearing: Authorization,
    },
    /// By a sponsor's key.
    Carrier {
        /// Where the sponsor's key stands.
        path: KeyPath,
        /// The transaction.
        carrier: Carrier,
    },
    /// By the keys of a sponsor and of the payer.
    Guarded {
        /// Where the sponsor's key stands.
        path: KeyPath,
        /// Where the payer's key stands.
        payer: KeyPath,
        /// The transaction.
        guarded: Guarded,
    },
    /// By a treasury's key, where each transaction makes a guard.
    Refill {
        /// Where the treasury's key stands.
        path: KeyPath,
        /// The transaction.
        refill: GuardedRefill,
    },
    /// By the keys of a sponsor and of the payers whose guards it takes back.
    Reclaim {
        /// Where the sponsor's key stands.
        path: KeyPath,
        /// Where the payer's key of each guard stands.
        payers: Vec<KeyPath>,
        /// The transaction.
        reclaim: Reclaim,
    },
}

/// A transaction of a sponsor that carries what others have signed, or of a treasury that refills a sponsor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Carrier {
    /// Who pays for it.
    pub sponsor: Address,
    /// What it carries.
    pub carried: Carried,
    /// The sponsor's nonce.
    pub nonce: u64,
    /// The most gas that it may use.
    pub gas_limit: u64,
    /// The most that a unit of gas may cost, in base units of the native currency.
    pub max_fee: u128,
    /// What of that goes to who makes the block.
    pub tip: u128,
}

/// What a transaction of a sponsor carries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Carried {
    /// A payment.
    Payment {
        /// What is paid.
        signed: SignedIntent,
        /// What it brings beside, where the payer's account has no such delegate yet.
        authorization: Option<Box<SignedAuthorization>>,
    },
    /// The end of an intent that was not paid. Its signature is that of its cancellation.
    Cancellation(SignedIntent),
    /// What takes the delegates of so many wallets away: at least one, and at most [`CLEARINGS_MAX`](crate::CLEARINGS_MAX).
    Clearings(Vec<SignedAuthorization>),
    /// What the treasury of a chain gives a sponsor. Nothing else is carried by it.
    Refill(Refill),
}

/// What the treasury of a chain gives a sponsor of that chain, of the native currency.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refill {
    /// CAIP-2, for example `eip155:8453`.
    pub chain_ref: String,
    /// The sponsor's number.
    pub number: u32,
    /// Its address.
    pub recipient: Address,
    /// In base units.
    pub amount: U256,
}

/// A transaction of Solana that makes an intent's guard and pays. It can land while its blockhash is young enough.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Guarded {
    /// Who pays for it.
    pub sponsor: Address,
    /// What it pays.
    pub intent: Intent,
    /// What it is made of beside that.
    pub terms: GuardTerms,
}

/// A transaction of Solana by which a treasury makes the guard of a refill, and gives it. That guard is never taken back, so
/// the treasury can give nothing else with the same number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GuardedRefill {
    /// Who pays for it.
    pub treasury: Address,
    /// What it gives.
    pub refill: Refill,
    /// The number of the refill, in the place of a nonce: 0, 1, 2..
    pub nonce: u64,
    /// What it is made of beside that.
    pub terms: GuardTerms,
}

/// A transaction of Solana that takes back what guards hold. They are there no more behind it, so nothing may be alive that
/// they refuse.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reclaim {
    /// Who pays for it, and is given what the guards hold.
    pub sponsor: Address,
    /// What made each guard, and what it holds, in lamports.
    pub guards: Vec<(Intent, u64)>,
    /// The hash of a recent block.
    pub blockhash: BlockHash,
    /// The most compute units that it may use.
    pub compute_limit: u32,
}

/// What a transaction that makes a guard is made of beside what it pays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct GuardTerms {
    /// The hash of a recent block.
    pub blockhash: BlockHash,
    /// What the guard is made with, in lamports: as much as it must have to stay.
    pub rent: u64,
    /// The most compute units that it may use.
    pub compute_limit: u32,
    /// What one of them costs, in millionths of a lamport.
    pub compute_price: u64,
    /// The recipient's account takes no payment without a memo: the transfer's id stands in front of it.
    pub memo: bool,
    /// The recipient has no account of the token: the sponsor pays for one. Without it none is made, whatever became of
    /// the account since: who closes it gets no second one from an attempt that was made while it stood.
    pub makes_account: bool,
}

/// What the signer made of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signed {
    /// Of what a wallet signs its signature, which is nothing for an intent on Solana; of a transaction all of it, as it
    /// is sent.
    pub bytes: Vec<u8>,
    /// Of a transaction its id.
    pub tx: Option<TxId>,
    /// The number of its entry in the signer's journal.
    pub seq: u64,
}

/// A part of a signer's journal, as far as it is about one chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JournalPage {
    /// The number of the newest entry of all.
    pub newest: u64,
    /// The number of the last entry of this part; that of `newest`, or of a later call's start, where nothing is behind it.
    pub through: u64,
    /// Its entries about the chain, with their numbers, in their order.
    pub entries: Vec<(u64, Journaled)>,
}

/// What an entry of a signer's journal says was signed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Journaled {
    /// By a payer's key: what a transfer pays, until a deadline.
    Intent {
        /// The transfer's id.
        transfer_id: [u8; 16],
        /// Seconds since 1970.
        deadline: u64,
    },
    /// By a payer's key: that a transfer is not paid.
    Cancellation {
        /// The transfer's id.
        transfer_id: [u8; 16],
    },
    /// By a wallet's key, for a delegate, or against it.
    Authorization(Authorization),
    /// By a sponsor's key: a transaction that carries what others have signed, or makes a guard.
    Carrier {
        /// The transfer's id; `None` of what takes delegates away.
        transfer_id: Option<[u8; 16]>,
        /// Who pays for it.
        sponsor: Address,
        /// The sponsor's nonce; `None` where transactions have none.
        nonce: Option<u64>,
        /// Its id.
        tx: TxId,
    },
    /// By a treasury's key: a transaction that refills a sponsor.
    Refill {
        /// Who pays for it.
        treasury: Address,
        /// The treasury's nonce.
        nonce: u64,
        /// What it gives.
        refill: Refill,
        /// Its id.
        tx: TxId,
    },
    /// By the keys of a sponsor and of payers: a transaction that takes back guards.
    Reclaim {
        /// Who pays for it.
        sponsor: Address,
        /// The hash of the block that it names.
        blockhash: BlockHash,
        /// Its id.
        tx: TxId,
    },
}

/// Why the signer does not sign one request. It stays so until a person changes the policy or the request is another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("the signer refuses: {0}")]
pub struct Refusal(pub String);

/// The signer cannot be reached, or cannot write its journal: nothing was signed. The same request may be made again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the signer is not available: {0}")]
pub struct SignerUnavailable(pub String);

/// Who holds the keys.
pub trait Signer: Send + Sync + fmt::Debug + 'static {
    /// Its name, made once with its journal: a signer with another name has another journal.
    fn id(&self) -> &str;

    /// The address of each path, in their order.
    fn addresses<'s>(&'s self, paths: &'s [KeyPath]) -> Signing<'s, Vec<Address>>;

    /// Signs each of at most [`SIGN_REQUESTS_MAX`] requests, or refuses it; in their order.
    fn sign<'s>(&'s self, requests: &'s [SignRequest]) -> Signing<'s, Vec<Result<Signed, Refusal>>>;

    /// Reads at most [`JOURNAL_ENTRIES_MAX`] entries of its journal behind entry `behind`, for those about the chain with
    /// this CAIP-2 name.
    fn journal<'s>(&'s self, chain_ref: &'s str, behind: u64) -> Signing<'s, JournalPage>;
}

impl KeyPath {
    /// Of an account's wallet. `tag` is empty for the address that pays; of a further deposit address it is the request
    /// that asked for it.
    pub fn of_wallet(family: Family, account_id: &str, tag: &str) -> Self {
        KeyPath::of(Seed::Wallets, family, account_id, tag)
    }

    /// Of the sponsor with this number on the chain with this CAIP-2 name.
    pub fn of_sponsor(family: Family, chain_ref: &str, number: u32) -> Self {
        KeyPath::of(Seed::Sponsors, family, chain_ref, &number.to_string())
    }

    /// Of the treasury of the chain with this CAIP-2 name. It is no sponsor's: those have numbers.
    pub fn of_treasury(family: Family, chain_ref: &str) -> Self {
        KeyPath::of(Seed::Sponsors, family, chain_ref, "treasury")
    }

    fn of(seed: Seed, family: Family, owner: &str, tag: &str) -> Self {
        let family_name = match family {
            Family::Evm => "evm",
            Family::Solana => "solana",
        };
        let fields = ["path/v1", family_name, owner, tag];
        let hash = hash_of(fields.iter().map(|field| field.as_bytes()));
        let number = |at: usize| {
            let bytes = hash[at..at + 4].try_into().expect("4 of 32 bytes");
            u32::from_be_bytes(bytes) & !(1 << 31)
        };
        KeyPath { seed, family, account: number(0), index: number(4) }
    }
}

impl Refill {
    /// What stands in the place of a transfer's id: it follows from the chain, its treasury and the nonce alone.
    pub fn id(chain_ref: &str, treasury: &Address, nonce: u64) -> [u8; 16] {
        let nonce = nonce.to_be_bytes();
        let hash = hash_of([b"refill/v1".as_slice(), chain_ref.as_bytes(), treasury.as_bytes(), &nonce]);
        let (id, _) = hash.split_first_chunk().expect("32 is more than 16");
        *id
    }

    /// What it pays where each transaction makes a guard. Nothing but its guard keeps it from being paid twice: it has no
    /// deadline.
    pub fn intent(&self, treasury: &Address, nonce: u64) -> Intent {
        Intent {
            transfer_id: Refill::id(&self.chain_ref, treasury, nonce),
            chain_ref: self.chain_ref.clone(),
            // The native currency is moved in base units, whatever its decimals.
            route: Route::Guard { program: None, decimals: 0 },
            asset: AssetId::Native,
            payer: *treasury,
            destination: self.recipient,
            amount: self.amount,
            deadline: 0,
        }
    }
}

impl GuardedRefill {
    /// The transaction as one that makes a guard: its payer pays for it.
    pub fn guarded(&self) -> Guarded {
        let GuardedRefill { treasury, refill, nonce, terms } = self;
        Guarded { sponsor: *treasury, intent: refill.intent(treasury, *nonce), terms: *terms }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyPath { account, index, .. } = self;
        match self.family {
            Family::Evm => write!(f, "m/44'/60'/{account}'/0/{index}"),
            Family::Solana => write!(f, "m/44'/501'/{account}'/{index}'"),
        }
    }
}
