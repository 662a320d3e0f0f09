//! What a key may do: each route needs one scope, and refuses a key without it.
//!
//! Promises: a scope allows what its name says and nothing else, except `admin`, which allows everything. A set of
//! scopes is never empty. Which route needs which scope is decided by the API.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One kind of request that a key may make.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// See deposits, accounts, balances, events.
    Read,
    /// Make and change accounts and identities.
    Write,
    /// See, make and change receivers of events.
    Webhooks,
    /// Send money.
    Transfers,
    /// Everything.
    Admin,
}

/// All that a key may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scopes(BTreeSet<Scope>);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown scope {0:?}: expected one of read, write, webhooks, transfers, admin")]
pub struct ScopeError(String);

impl Scope {
    pub const ALL: [Scope; 5] = [Scope::Read, Scope::Write, Scope::Webhooks, Scope::Transfers, Scope::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Webhooks => "webhooks",
            Scope::Transfers => "transfers",
            Scope::Admin => "admin",
        }
    }
}

impl Scopes {
    /// These scopes; `None` when there are none.
    pub fn of(scopes: &[Scope]) -> Option<Self> {
        (!scopes.is_empty()).then(|| Scopes(scopes.iter().copied().collect()))
    }

    /// Whether a key with these scopes may use a route that needs `scope`.
    pub fn give(&self, scope: Scope) -> bool {
        self.0.contains(&scope) || self.0.contains(&Scope::Admin)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|scope| scope.name()).collect()
    }
}

/// One scope is a set too.
impl From<Scope> for Scopes {
    fn from(scope: Scope) -> Self {
        Scopes([scope].into())
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Scope::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| ScopeError(text.to_owned()))
    }
}

/// As they are stored: names with commas between them.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(","))
    }
}

impl FromStr for Scopes {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Ok(Scopes(text.split(',').map(str::parse).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_gives_itself_and_admin_gives_all() {
        for scope in Scope::ALL {
            for needed in Scope::ALL {
                let gives = scope == needed || scope == Scope::Admin;
                assert_eq!(Scopes::from(scope).give(needed), gives, "{scope:?} for {needed:?}");
            }
        }
        let two = Scopes::of(&[Scope::Webhooks, Scope::Read]).unwrap();
        assert!(two.give(Scope::Read) && two.give(Scope::Webhooks) && !two.give(Scope::Write));
    }

    #[test]
    fn scopes_are_read_back_and_are_never_none() {
        let all = Scopes::of(&Scope::ALL).unwrap();
        assert_eq!(all.to_string(), "read,write,webhooks,transfers,admin");
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!(Scopes::of(&[]), None);
        for bad in ["", "Read", "read,", "read write", "root"] {
            assert!(bad.parse::<Scopes>().is_err(), "{bad}");
        }
    }
}
