//! Why a movement of value is a credit or none: a closed list of codes, which `deposit explain` prints.

use std::fmt;

/// What became of one leg of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// It is a CONFIRMED deposit.
    Credited,
    /// It is a PENDING deposit, or will be one.
    Pending,
    /// It came before the account moved here.
    Historical,
    /// Its token is not listed.
    UnlistedToken,
    /// Its transaction failed.
    RevertedTx,
    /// The call that moved it, or one around it, failed.
    RevertedFrame,
    /// The call borrowed code: nothing moved.
    Delegatecall,
    /// It moves nothing.
    ZeroValue,
    /// Sender and recipient are the same.
    SelfTransfer,
    /// Nobody watches its recipient.
    NotWatched,
    /// Its recipient is watched from a later block on.
    NotWatchedThen,
    /// Its recipient is watched on other chains only.
    ChainNotRegistered,
    /// It went to a token account that is not the owner's own (Solana).
    IneligibleTokenAccount,
    /// It is less than the minimum.
    BelowMinimum,
    /// It came to an address that pays for transactions here.
    OwnGasTopup,
    /// It is rent of an own account that came back (Solana).
    RentRefund,
    /// Its receipt does not say whether the transaction succeeded (before Byzantium).
    NoStatus,
    /// Nothing proves it.
    Unproved,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 18] = [
        Verdict::Credited,
        Verdict::Pending,
        Verdict::Historical,
        Verdict::UnlistedToken,
        Verdict::RevertedTx,
        Verdict::RevertedFrame,
        Verdict::Delegatecall,
        Verdict::ZeroValue,
        Verdict::SelfTransfer,
        Verdict::NotWatched,
        Verdict::NotWatchedThen,
        Verdict::ChainNotRegistered,
        Verdict::IneligibleTokenAccount,
        Verdict::BelowMinimum,
        Verdict::OwnGasTopup,
        Verdict::RentRefund,
        Verdict::NoStatus,
        Verdict::Unproved,
    ];

    /// The code, for example `reverted_frame`.
    pub const fn code(self) -> &'static str {
        match self {
            Verdict::Credited => "credited",
            Verdict::Pending => "pending",
            Verdict::Historical => "historical",
            Verdict::UnlistedToken => "unlisted_token",
            Verdict::RevertedTx => "reverted_tx",
            Verdict::RevertedFrame => "reverted_frame",
            Verdict::Delegatecall => "delegatecall",
            Verdict::ZeroValue => "zero_value",
            Verdict::SelfTransfer => "self_transfer",
            Verdict::NotWatched => "not_watched",
            Verdict::NotWatchedThen => "not_watched_then",
            Verdict::ChainNotRegistered => "chain_not_registered",
            Verdict::IneligibleTokenAccount => "ineligible_token_account",
            Verdict::BelowMinimum => "below_minimum",
            Verdict::OwnGasTopup => "own_gas_topup",
            Verdict::RentRefund => "rent_refund",
            Verdict::NoStatus => "no_status",
            Verdict::Unproved => "unproved",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
