//! What stands in the place of tokens where the program was built without PKCS#11: none opens, so none is ever asked.

use landfall_chain::KeyPath;

use crate::TokenError;
use crate::token::{Curve, TokenPlace};

/// There is none.
#[derive(Debug)]
pub struct Token(Never);

/// A key of one.
pub(crate) struct Held(Never);

#[derive(Debug)]
enum Never {}

impl Token {
    /// No token opens.
    ///
    /// # Errors
    /// Always.
    pub fn open(_place: TokenPlace) -> Result<Self, TokenError> {
        Err(TokenError::NotBuilt)
    }

    pub(crate) fn find(&self, _path: &KeyPath, _curve: Curve) -> Result<Held, TokenError> {
        match self.0 {}
    }

    pub(crate) fn find_or_make(&self, _path: &KeyPath, _curve: Curve) -> Result<Held, TokenError> {
        match self.0 {}
    }
}

impl Held {
    pub(crate) fn label(&self) -> &str {
        match self.0 {}
    }

    pub(crate) fn curve(&self) -> Curve {
        match self.0 {}
    }

    pub(crate) fn public(&self) -> &[u8] {
        match self.0 {}
    }

    pub(crate) fn sign(&self, _content: &[u8]) -> Result<[u8; 64], TokenError> {
        match self.0 {}
    }
}
