//! One transaction's balances, before and after, checked to belong together.
//!
//! Promises: every account has both balances. Every token balance has its account, once, and is a whole number. What
//! is reported of an account without lamports counts as nothing: it is closed (some nodes go on reporting what it
//! held). The order in which a node lists token balances changes nothing.

use crate::error::Unusable;
use crate::wire::{WireKey, WireTokenBalance, WireTx};

#[derive(Debug)]
pub(crate) struct Tx<'a> {
    /// Its place in the block.
    pub(crate) index: usize,
    pub(crate) signature: &'a str,
    /// Those from lookup tables, too. The first paid the fee.
    pub(crate) keys: Vec<&'a str>,
    /// How many of them signed: the first ones.
    signers: usize,
    pub(crate) failed: bool,
    pub(crate) fee: u64,
    /// By account, in lamports.
    pub(crate) pre: &'a [u64],
    pub(crate) post: &'a [u64],
    /// Those before, then those after, each by account.
    pub(crate) tokens: Vec<Holding<'a>>,
}

/// What a token account held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding<'a> {
    pub(crate) account: usize,
    pub(crate) is_after: bool,
    pub(crate) mint: &'a str,
    pub(crate) owner: Option<&'a str>,
    pub(crate) program: Option<&'a str>,
    pub(crate) decimals: u8,
    pub(crate) amount: u64,
}

impl Holding<'_> {
    /// What it adds to the change of its owner's balance.
    pub(crate) fn change(&self) -> i128 {
        if self.is_after { i128::from(self.amount) } else { -i128::from(self.amount) }
    }
}

impl<'a> Tx<'a> {
    pub(crate) fn of(index: usize, wire: &'a WireTx<'a>) -> Result<Self, Unusable> {
        let meta = wire.meta.as_ref().ok_or(Unusable::NoMeta { index })?;
        let signature = wire.transaction.signatures.first().ok_or(Unusable::Signature { index })?;
        let keys = keys(wire);
        let (pre, post) = (meta.pre_balances.as_slice(), meta.post_balances.as_slice());
        if keys.is_empty() || keys.len() != pre.len() || keys.len() != post.len() {
            return Err(Unusable::Balances { index, keys: keys.len(), pre: pre.len(), post: post.len() });
        }
        let mut tokens = Vec::with_capacity(meta.pre_token_balances.len() + meta.post_token_balances.len());
        for (balances, is_after, lamports) in
            [(&meta.pre_token_balances, false, pre), (&meta.post_token_balances, true, post)]
        {
            let first = tokens.len();
            for balance in balances {
                let holding = holding(index, balance, is_after, lamports)?;
                if tokens[first..].iter().any(|other: &Holding<'_>| other.account == holding.account) {
                    return Err(Unusable::TokenAccount { index, account: holding.account });
                }
                tokens.push(holding);
            }
            // Nodes list them in no fixed order, and identities of debits depend on it.
            tokens[first..].sort_unstable_by_key(|holding| holding.account);
        }
        let signers = wire.transaction.signatures.len();
        let mut tx = Tx { index, signature, keys, signers, failed: meta.failed, fee: meta.fee, pre, post, tokens };
        if tx.tokens.iter().any(|holding| tx.is_closed(holding)) {
            let reported = tx.tokens.iter().filter(|holding| tx.says_something(holding)).copied().collect();
            tx.tokens = reported;
        }
        Ok(tx)
    }

    fn is_closed(&self, holding: &Holding<'_>) -> bool {
        holding.is_after && self.post[holding.account] == 0
    }

    /// False for what a closed account is still reported to hold, where nothing depends on it: the account is known to
    /// hold tokens from before, or its lamports did not change.
    fn says_something(&self, holding: &Holding<'_>) -> bool {
        let is_reported_before = || self.tokens.iter().any(|other| other.account == holding.account && !other.is_after);
        !self.is_closed(holding) || !(is_reported_before() || self.lamports_change(holding.account) == 0)
    }

    /// The change of an account's lamports; what its fee cost the payer is added back.
    pub(crate) fn lamports_change(&self, account: usize) -> i128 {
        let change = i128::from(self.post[account]) - i128::from(self.pre[account]);
        if account == 0 { change + i128::from(self.fee) } else { change }
    }

    /// The accounts that signed it: each has a signature, in the order of the accounts.
    pub(crate) fn signers(&self) -> &[&'a str] {
        &self.keys[..self.signers.min(self.keys.len())]
    }

    /// Whether an account came into being that is no token account.
    pub(crate) fn makes_accounts(&self) -> bool {
        self.made().next().is_some()
    }

    /// The accounts that had no lamports before, and have some after it, but for token accounts.
    pub(crate) fn made(&self) -> impl Iterator<Item = &'a str> {
        let is_made =
            |account: &usize| self.pre[*account] == 0 && self.post[*account] > 0 && !self.is_token_account(*account);
        (0..self.keys.len()).filter(is_made).map(|account| self.keys[account])
    }

    /// Who owned the token account before, or after where it was made here. `None` when it is no token account, or its
    /// owner is not reported.
    pub(crate) fn token_owner(&self, account: usize) -> Option<&'a str> {
        self.tokens.iter().find(|holding| holding.account == account)?.owner
    }

    pub(crate) fn is_token_account(&self, account: usize) -> bool {
        self.tokens.iter().any(|holding| holding.account == account)
    }
}

fn keys<'a>(wire: &'a WireTx<'a>) -> Vec<&'a str> {
    let body = &wire.transaction;
    let listed = body.account_keys.as_ref().or(body.message.as_ref().map(|message| &message.account_keys));
    let listed = listed.map_or(&[][..], Vec::as_slice);
    let mut keys: Vec<&str> = listed.iter().map(|key| key.text()).collect();
    let is_bare = matches!(listed.first(), Some(WireKey::Bare(_)));
    if let Some(loaded) = wire.meta.as_ref().and_then(|meta| meta.loaded_addresses.as_ref()).filter(|_| is_bare) {
        keys.extend(loaded.writable.iter().chain(&loaded.readonly));
    }
    keys
}

fn holding<'a>(
    index: usize,
    balance: &'a WireTokenBalance<'a>,
    is_after: bool,
    lamports: &[u64],
) -> Result<Holding<'a>, Unusable> {
    let account = balance.account_index;
    let lamports = *lamports.get(account).ok_or(Unusable::TokenAccount { index, account })?;
    let amount: u64 = balance.ui_token_amount.amount.parse().map_err(|_| Unusable::Amount { index })?;
    Ok(Holding {
        account,
        is_after,
        mint: balance.mint,
        owner: balance.owner,
        program: balance.program_id,
        decimals: balance.ui_token_amount.decimals,
        amount: if lamports == 0 { 0 } else { amount },
    })
}
