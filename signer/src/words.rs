//! The words of a seed (BIP-39, English): 24 when they are made here, 12 to 24 when they come from elsewhere.
//!
//! Promises: they are wiped from memory when they are dropped, and are shown only by [`Words::phrase`]. There is no
//! passphrase of BIP-39: it would be a second secret, and a wrong one gives other keys without an error.

use std::fmt;
use std::str::FromStr;

use coins_bip39::{English, Entropy, Mnemonic, MnemonicError};
use rand::TryRng;
use rand::rngs::SysRng;
use zeroize::Zeroizing;

/// 24 words.
const ENTROPY_BYTES: usize = 32;

/// The words of one seed.
#[derive(Clone, PartialEq, Eq)]
pub struct Words(Mnemonic<English>);

/// Why there are no words.
#[derive(Debug, thiserror::Error)]
pub enum WordsError {
    /// The text is no phrase of BIP-39. No word of it is shown.
    #[error("{0}; expected are 12, 15, 18, 21 or 24 English words of BIP-39")]
    Malformed(String),
    /// The system gives no randomness.
    #[error("the system gives no randomness")]
    Randomness(#[source] rand::rngs::SysError),
}

impl Words {
    /// 24 new words, of the system's own randomness.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn random() -> Result<Self, WordsError> {
        let mut entropy = Zeroizing::new([0; ENTROPY_BYTES]);
        SysRng.try_fill_bytes(entropy.as_mut()).map_err(WordsError::Randomness)?;
        let entropy = Entropy::from_slice(entropy.as_ref()).expect("32 bytes are 24 words");
        Ok(Words(Mnemonic::new_from_entropy(entropy)))
    }

    /// The words, with a space between each two.
    pub fn phrase(&self) -> Zeroizing<String> {
        self.0.to_phrase()
    }

    /// What keys are derived of.
    pub(crate) fn seed(&self) -> Zeroizing<[u8; 64]> {
        self.0.to_seed(None).expect("words that were read have a seed")
    }
}

/// Reads words in any case, with any space between them.
impl FromStr for Words {
    type Err = WordsError;

    fn from_str(text: &str) -> Result<Self, WordsError> {
        let mut phrase = Zeroizing::new(String::with_capacity(text.len()));
        for word in text.split_whitespace() {
            if !phrase.is_empty() {
                phrase.push(' ');
            }
            phrase.extend(word.chars().map(|c| c.to_ascii_lowercase()));
        }
        let malformed = |error| WordsError::Malformed(without_words(&error, text.split_whitespace().count()));
        Mnemonic::new_from_phrase(&phrase).map(Words).map_err(malformed)
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Words(..)")
    }
}

fn without_words(error: &MnemonicError, count: usize) -> String {
    match error {
        MnemonicError::InvalidWordCount(_) => format!("{count} words"),
        MnemonicError::InvalidWord(position) => format!("word {} is not of the list", position + 1),
        MnemonicError::InvalidChecksum => "the last word does not fit the others".to_owned(),
        MnemonicError::InvalidEntropyLength(_) | MnemonicError::Bip32Error(_) => "no words of a seed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNK: &str = "test test test test test test test test test test test junk";

    #[test]
    fn words_are_read_in_any_case_and_with_any_space() {
        let words: Words = JUNK.parse().unwrap();
        assert_eq!(*words.phrase(), JUNK);
        let shouted = format!("  {}\n", JUNK.to_uppercase().replace(' ', "\n\t"));
        assert_eq!(shouted.parse::<Words>().unwrap(), words);
        assert_eq!(format!("{words:?}"), "Words(..)");
    }

    #[test]
    fn new_words_are_24_and_never_the_same() {
        let (one, other) = (Words::random().unwrap(), Words::random().unwrap());
        assert_eq!(one.phrase().split(' ').count(), 24);
        assert_ne!(one, other);
        assert_eq!(one.phrase().parse::<Words>().unwrap(), one);
    }

    #[test]
    fn a_refusal_says_what_is_wrong_and_shows_no_word() {
        let cases = [
            ("", "0 words"),
            ("test junk", "2 words"),
            ("test test test test secret! test test test test test test junk", "word 5 is not of the list"),
            ("test test test test test test test test test test test test", "the last word does not fit the others"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Words>().unwrap_err().to_string();
            assert_eq!(error, format!("{expected}; expected are 12, 15, 18, 21 or 24 English words of BIP-39"));
        }
    }
}
