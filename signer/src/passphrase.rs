//! The passphrase of a keystore: from a file or a descriptor, never from an argument, which every process may read.
//!
//! Promise: it is wiped from memory when it is dropped, and never printed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use age::secrecy::SecretString;
use zeroize::Zeroizing;

use crate::keystore::is_open_to_others;

/// The most bytes of a passphrase.
const BYTES_MAX: u64 = 1024;

/// What opens the seeds.
#[derive(Clone, Debug)]
pub struct Passphrase(pub(crate) SecretString);

/// Why there is no passphrase.
#[derive(Debug, thiserror::Error)]
pub enum PassphraseError {
    /// The file cannot be read.
    #[error("cannot read the passphrase from {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may read it.
    #[error("the passphrase in {0} can be read by others: chmod 600 {0}")]
    Open(PathBuf),
    /// Nothing is in it, or what is no text, or too much.
    #[error("{path} holds no passphrase: expected is one line of 1 to {BYTES_MAX} bytes of UTF-8")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl Passphrase {
    /// A passphrase that is in memory already, for example typed by a person.
    pub fn new(text: Zeroizing<String>) -> Self {
        Passphrase(SecretString::from(text.as_str()))
    }

    /// The first line of a file. A regular file must be readable by its owner alone.
    ///
    /// # Errors
    /// It cannot be read, is open to others, or its first line is no passphrase.
    pub fn from_file(path: &Path) -> Result<Self, PassphraseError> {
        let cannot = |source| PassphraseError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        if metadata.is_file() && is_open_to_others(&metadata) {
            return Err(PassphraseError::Open(path.to_owned()));
        }
        // Whole at once: a buffer that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2048));
        file.take(BYTES_MAX + 2).read_to_end(&mut bytes).map_err(cannot)?;
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).ok().filter(|text| !text.is_empty() && text.len() as u64 <= BYTES_MAX);
        let text = text.ok_or_else(|| PassphraseError::Malformed { path: path.to_owned() })?;
        Ok(Passphrase(SecretString::from(text)))
    }

    /// From a descriptor that is open in this process, for example 3 of `landfall 3< file`.
    ///
    /// # Errors
    /// As for a file.
    pub fn from_descriptor(number: u32) -> Result<Self, PassphraseError> {
        Passphrase::from_file(Path::new(&format!("/dev/fd/{number}")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use age::secrecy::ExposeSecret;

    use super::*;

    fn file_with(content: &[u8], mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_first_line_of_a_file_is_the_passphrase() {
        for content in ["a secret", "a secret\n", "a secret\r\n", "a secret\nmore\n"] {
            let passphrase = Passphrase::from_file(file_with(content.as_bytes(), 0o600).path()).unwrap();
            assert_eq!(passphrase.0.expose_secret(), "a secret");
            assert!(!format!("{passphrase:?}").contains("secret\""), "{passphrase:?}");
        }
    }

    #[test]
    fn a_descriptor_gives_it_too() {
        let file = File::open(file_with(b"a secret\n", 0o600).path()).unwrap();
        let passphrase = Passphrase::from_descriptor(file.as_raw_fd().try_into().unwrap()).unwrap();
        assert_eq!(passphrase.0.expose_secret(), "a secret");
    }

    #[test]
    fn what_is_no_passphrase_is_refused_with_what_to_do() {
        for content in [b"".as_slice(), b"\nsecond", b"\xff\n", &[b'a'; 1025]] {
            let file = file_with(content, 0o600);
            let error = Passphrase::from_file(file.path()).unwrap_err().to_string();
            let path = file.path().display();
            assert_eq!(error, format!("{path} holds no passphrase: expected is one line of 1 to 1024 bytes of UTF-8"));
        }
        let file = file_with(b"a secret", 0o640);
        let (error, path) = (Passphrase::from_file(file.path()).unwrap_err(), file.path().display());
        assert_eq!(error.to_string(), format!("the passphrase in {path} can be read by others: chmod 600 {path}"));
        let error = Passphrase::from_file(Path::new("/nowhere")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the passphrase from /nowhere");
    }
}
