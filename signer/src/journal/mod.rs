//! The signer's journal: an append-only file beside the seeds that says what was signed. It is the second fence: a store
//! that was set back cannot make the signer sign another content for a transfer.
//!
//! Each entry has the hash of the one before, and the first the signer's id, made with the journal.
//! Promises: an entry is on disk before its signature leaves. After a failed write the file is cut back to what was there.
//! A file that does not follow from its first entry is not opened; only a last line that a crash tore is mended.

mod index;
mod line;
mod pages;

pub use index::{DEADLINES_MAX, Seen};
pub(crate) use line::Made;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use landfall_chain::{Authorization, Carrier, Guarded, GuardedRefill, Intent, KeyPath, Reclaim, TxId, U256};
use rand::TryRng;
use rand::rngs::SysRng;

use crate::keystore::{is_open_to_others, new_file};
use crate::policy::Entries;
use index::Index;
use line::{Kind, Line, NO_HASH, SignerContent};
use pages::{Part, Places};

/// Why there is no journal to write to.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refuses.
    #[error("cannot use the journal {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It is not beside the seeds.
    #[error("there is no journal {0}: restore it from a copy, or import the words into a new keystore")]
    Missing(PathBuf),
    /// Others may read it.
    #[error("{0} can be read by others: chmod 600 {0}")]
    Open(PathBuf),
    /// Somebody changed it, or the disk lost a part.
    #[error("journal {path} line {line} {what}: nothing is signed until it is restored from a copy")]
    Broken {
        /// The file.
        path: PathBuf,
        /// 1 is the first.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// What a whole journal says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The signer's id.
    pub signer: String,
    /// The number of the newest entry.
    pub newest_seq: u64,
    /// Its hash.
    pub newest_hash: String,
    /// The bytes of whole lines.
    pub bytes: u64,
    /// The bytes of a last line that a crash tore.
    pub torn_bytes: u64,
}

/// The journal that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// What is on disk.
    written: Verified,
    /// What is behind it and not on disk yet.
    staged: Vec<Line>,
    /// What is on disk and what is staged.
    index: Index,
    /// Of what is on disk.
    places: Places,
    /// A write failed, and left something behind what is on disk.
    must_be_cut: bool,
}

/// Checks every entry of a journal, whether it is open or not. Changes nothing.
///
/// # Errors
/// It cannot be read, or an entry does not follow from those before it.
pub fn verify(path: &Path) -> Result<Verified, JournalError> {
    let file = File::open(path).map_err(cannot_use(path))?;
    read(path, &file).map(|(verified, ..)| verified)
}

/// Makes a journal, and the id of its signer: 16 random bytes in hex.
pub(crate) fn create(path: &Path, at: u64) -> Result<String, JournalError> {
    let mut id = [0; 16];
    let random = SysRng.try_fill_bytes(&mut id).map_err(io::Error::other);
    random.map_err(cannot_use(path))?;
    let id = hex::encode(id);
    let first = Line::of_signer(&id, at).behind(0, NO_HASH);
    let mut file = new_file(path).map_err(cannot_use(path))?;
    file.write_all(&first.to_bytes()).and_then(|()| file.sync_all()).map_err(cannot_use(path))?;
    Ok(id)
}

/// What is to be written, and was judged first.
#[derive(Debug)]
pub(crate) struct Draft(Line);

impl Draft {
    pub(crate) fn of_intent(path: &KeyPath, intent: &Intent, at: u64) -> Self {
        Draft(Line::of_intent(path, intent, at))
    }

    pub(crate) fn of_authorization(path: &KeyPath, authorization: &Authorization, at: u64) -> Self {
        Draft(Line::of_authorization(path, authorization, at))
    }

    pub(crate) fn of_cancellation(path: &KeyPath, intent: &Intent, at: u64) -> Self {
        Draft(Line::of_cancellation(path, intent, at))
    }

    /// `entries` are those of what it carries. What is not made yet is only looked for.
    pub(crate) fn of_carrier(
        path: &KeyPath,
        carrier: &Carrier,
        (entries, made): (&Entries, Option<&Made>),
        at: u64,
    ) -> Self {
        Draft(Line::of_carrier(path, carrier, (entries, made), at))
    }

    /// `tx` is its id once it is made.
    pub(crate) fn of_refill(path: &KeyPath, refill: &GuardedRefill, tx: Option<&TxId>, at: u64) -> Self {
        Draft(Line::of_refill(path, refill, tx, at))
    }

    /// `path` is the sponsor's, `intent_seq` the entry of what it pays, and `tx` its id once it is made.
    pub(crate) fn of_guarded(
        path: &KeyPath,
        guarded: &Guarded,
        (intent_seq, tx): (u64, Option<&TxId>),
        at: u64,
    ) -> Self {
        Draft(Line::of_guarded(path, guarded, (intent_seq, tx), at))
    }

    /// `path` is the sponsor's, `entries` those of what made the guards, and `tx` its id once it is made.
    pub(crate) fn of_reclaim(
        path: &KeyPath,
        reclaim: &Reclaim,
        (entries, tx): (&[u64], Option<&TxId>),
        at: u64,
    ) -> Self {
        Draft(Line::of_reclaim(path, reclaim, (entries, tx), at))
    }
}

impl Journal {
    /// Opens a journal, verified. A torn last line is cut off, with a warning.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let file = OpenOptions::new().read(true).append(true).open(path).map_err(cannot_use(path))?;
        if is_open_to_others(&file.metadata().map_err(cannot_use(path))?) {
            return Err(JournalError::Open(path.to_owned()));
        }
        let (mut written, index, places) = read(path, &file)?;
        let torn_bytes = std::mem::take(&mut written.torn_bytes);
        if torn_bytes > 0 {
            let shown = path.display();
            tracing::warn!(torn_bytes, "the last line of the journal {shown} was torn by a crash: it is cut off");
            file.set_len(written.bytes).map_err(cannot_use(path))?;
        }
        // What a process wrote that crashed may not be on disk, and counts from now on.
        file.sync_all().map_err(cannot_use(path))?;
        Ok(Journal { path: path.to_owned(), file, written, staged: Vec::new(), index, places, must_be_cut: false })
    }

    /// The signer's id.
    pub(crate) fn id(&self) -> &str {
        &self.written.signer
    }

    /// The number of the newest entry on disk.
    pub(crate) fn newest_seq(&self) -> u64 {
        self.written.newest_seq
    }

    /// What stands on disk behind an entry.
    pub(crate) fn part(&self, behind: u64) -> Part {
        self.places.part(self.path.clone(), behind, (self.written.bytes, self.written.newest_seq))
    }

    /// What is known of it, also by what is staged.
    pub(crate) fn seen(&self, draft: &Draft) -> Seen {
        self.index.seen(&draft.0)
    }

    /// How much of the intent's asset was signed for within 24 hours, also by what is staged.
    pub(crate) fn spent_within_day(&self, intent: &Intent, now: u64) -> U256 {
        self.index.spent.within_day([&intent.chain_ref, &intent.asset.to_string()], now)
    }

    /// The entry that cancelled a transfer.
    pub(crate) fn cancelled(&self, transfer_id: &[u8; 16]) -> Option<u64> {
        self.index.cancelled(transfer_id)
    }

    /// Whether the guard that the intent of this entry made was taken back, or may have been.
    pub(crate) fn is_reclaimed(&self, intent: u64) -> bool {
        self.index.is_reclaimed(intent)
    }

    /// What became of the transaction of an entry, which may be staged.
    pub(crate) fn made(&self, seq: u64) -> io::Result<Made> {
        let made = match self.staged.iter().find(|line| line.seq == seq) {
            Some(line) => line.made(),
            None => self.part(seq.saturating_sub(1)).line(seq)?.made(),
        };
        made.ok_or_else(|| io::Error::other(format!("entry {seq} is no transaction")))
    }

    /// Puts it behind all others, in memory. `None` where it contradicts an earlier entry.
    pub(crate) fn stage(&mut self, draft: Draft) -> Option<u64> {
        let (seq, hash) = match self.staged.last() {
            Some(line) => (line.seq, &line.hash),
            None => (self.written.newest_seq, &self.written.newest_hash),
        };
        let line = draft.0.behind(seq + 1, hash);
        self.index.add(&line).ok()?;
        self.staged.push(line);
        Some(seq + 1)
    }

    /// Writes what is staged to disk, or forgets it.
    pub(crate) fn commit(&mut self) -> Result<(), JournalError> {
        let Some(newest) = self.staged.last() else { return Ok(()) };
        let (newest_seq, newest_hash) = (newest.seq, newest.hash.clone());
        let mut bytes = Vec::new();
        let mut begins = Vec::new();
        for line in &self.staged {
            begins.push((line.seq, self.written.bytes + bytes.len() as u64));
            bytes.extend(line.to_bytes());
        }
        match self.append(&bytes) {
            Ok(()) => {
                begins.into_iter().for_each(|(seq, at)| self.places.note(seq, at));
                self.written = Verified {
                    newest_seq,
                    newest_hash,
                    bytes: self.written.bytes + bytes.len() as u64,
                    ..self.written.clone()
                };
                self.staged.clear();
                Ok(())
            }
            Err(source) => {
                self.forget();
                Err(JournalError::Io { path: self.path.clone(), source })
            }
        }
    }

    /// Forgets what is staged.
    pub(crate) fn forget(&mut self) {
        while let Some(line) = self.staged.pop() {
            self.index.remove(&line);
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.cut()?;
        self.must_be_cut = true;
        let appended = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        if appended.is_err() {
            // Where this fails too, it is done before the next write.
            self.cut().ok();
            return appended;
        }
        self.must_be_cut = false;
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        if self.must_be_cut {
            self.file.set_len(self.written.bytes)?;
            self.file.sync_all()?;
            self.must_be_cut = false;
        }
        Ok(())
    }
}

fn read(path: &Path, file: &File) -> Result<(Verified, Index, Places), JournalError> {
    let mut reader = BufReader::new(file);
    let (mut index, mut places) = (Index::default(), Places::default());
    let mut next = || {
        let mut bytes = Vec::new();
        reader.read_until(b'\n', &mut bytes).map(|_| bytes).map_err(cannot_use(path))
    };
    let broken = |line, what| JournalError::Broken { path: path.to_owned(), line, what };
    let bytes = next()?;
    let first = Line::parse(&bytes).ok_or_else(|| broken(1, "cannot be read"))?;
    let signer = signer_of(&first).ok_or_else(|| broken(1, "does not say whose journal it is"))?;
    let whole = bytes.len() as u64;
    places.note(0, 0);
    let mut verified = Verified { signer, newest_seq: 0, newest_hash: first.hash, bytes: whole, torn_bytes: 0 };
    loop {
        let bytes = next()?;
        if !bytes.ends_with(b"\n") {
            return Ok((Verified { torn_bytes: bytes.len() as u64, ..verified }, index, places));
        }
        let seq = verified.newest_seq + 1;
        let line = Line::parse(&bytes).ok_or_else(|| broken(seq + 1, "cannot be read"))?;
        if !line.is_behind(seq, &verified.newest_hash) {
            return Err(broken(seq + 1, "does not follow from the one before"));
        }
        index.add(&line).map_err(|_| broken(seq + 1, "contradicts an earlier one"))?;
        places.note(seq, verified.bytes);
        verified.newest_seq = seq;
        verified.newest_hash = line.hash;
        verified.bytes += bytes.len() as u64;
    }
}

/// The id in the first entry.
fn signer_of(first: &Line) -> Option<String> {
    let is_first = first.kind == Kind::Signer && first.is_behind(0, NO_HASH);
    let content: SignerContent = serde_json::from_str(first.content.get()).ok().filter(|_| is_first)?;
    Some(content.id)
}

fn cannot_use(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => JournalError::Missing(path),
        _ => JournalError::Io { path, source },
    }
}
