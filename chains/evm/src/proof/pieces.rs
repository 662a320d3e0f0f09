//! Byte strings one behind the other in one buffer: the entries and the nodes of a trie, which come by the hundred.
//!
//! Promises: each piece comes back as it was written, in the order of writing. Nothing is ever taken out.

/// Many byte strings, two allocations.
#[derive(Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pieces {
    pub(crate) fn with_capacity(pieces: usize, bytes_of_each: usize) -> Self {
        Pieces { bytes: Vec::with_capacity(pieces * bytes_of_each), ends: Vec::with_capacity(pieces) }
    }

    /// Adds what `write` puts at the end of the buffer.
    pub(crate) fn push<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let written = write(&mut self.bytes);
        self.ends.push(self.bytes.len());
        written
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The piece at `index`, which must be less than [`Pieces::len`].
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Frees what was reserved for more, for a caller who keeps it.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}
