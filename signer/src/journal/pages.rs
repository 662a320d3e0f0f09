//! Parts of a journal, read again from its file: for who compares it with what else is on record.
//!
//! Promise: only what is on disk is read, and no part is longer than a call may have.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use landfall_chain::{JOURNAL_ENTRIES_MAX, JournalPage};

use crate::journal::line::Line;

/// Where each 1,000th entry begins, in bytes.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<u64>);

/// A part that may be read while others write behind it.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    /// Where the reading begins, and how many bytes from the journal's first one are on disk.
    from: u64,
    end: u64,
    newest: u64,
}

impl Places {
    /// Entry `seq` begins at this byte; entries come in their order.
    pub(super) fn note(&mut self, seq: u64, at: u64) {
        if seq.is_multiple_of(JOURNAL_ENTRIES_MAX) {
            self.0.push(at);
        }
    }

    /// The part behind the entry `behind` of a journal with so many bytes, whose newest entry is `newest`.
    pub(super) fn part(&self, path: PathBuf, behind: u64, (end, newest): (u64, u64)) -> Part {
        let place = usize::try_from(behind / JOURNAL_ENTRIES_MAX).unwrap_or(usize::MAX);
        let from = self.0.get(place).copied().unwrap_or(end);
        Part { path, from, end, newest }
    }
}

impl Part {
    /// Its entries behind `behind` about the chain.
    pub(crate) fn read(&self, chain_ref: &str, behind: u64) -> io::Result<JournalPage> {
        let mut page = JournalPage { newest: self.newest, through: behind, entries: Vec::new() };
        for line in self.lines()? {
            let line = line?;
            if line.seq <= behind {
                continue;
            }
            if line.seq - behind > JOURNAL_ENTRIES_MAX {
                break;
            }
            page.through = line.seq;
            if line.chain.as_deref() == Some(chain_ref)
                && let Some(journaled) = line.journaled()
            {
                page.entries.push((line.seq, journaled));
            }
        }
        Ok(page)
    }

    /// One of its entries.
    pub(super) fn line(&self, seq: u64) -> io::Result<Line> {
        let is_it = |line: &io::Result<Line>| line.as_ref().map_or(true, |line| line.seq == seq);
        self.lines()?.find(is_it).unwrap_or_else(|| Err(io::Error::other(format!("there is no entry {seq}"))))
    }

    fn lines(&self) -> io::Result<impl Iterator<Item = io::Result<Line>>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.from))?;
        let lines = BufReader::new(file.take(self.end - self.from)).split(b'\n');
        Ok(lines.map(|bytes| {
            let line = Line::parse(&[bytes?, vec![b'\n']].concat());
            line.ok_or_else(|| io::Error::other("an entry cannot be read any more"))
        }))
    }
}
