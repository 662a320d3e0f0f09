//! Reads blocks slot by slot and returns those that are linked.
//!
//! A list of slots says what to read, and proves nothing. A parent that the list leaves out is asked for by its
//! number, down to the last block read before or to the first slot of the range. Where no endpoint has a block in a
//! listed slot, the next block decides: it stands on that slot, or it jumps over it. A missing block, or one on
//! another branch, ends the walk before it: fewer blocks come back, never a gap. Promises: each returned block stands
//! on the one before it, in slot and in hash.

use futures_util::{StreamExt, stream};
use landfall_chain::{Block, BlockRef, Header};

use crate::calls::Wanted;
use crate::dialect::is_not_found;
use crate::error::SolanaError;
use crate::links::{Link, link};

/// How many blocks of one range are asked for at once. They are some megabytes each, and a watcher reads four ranges
/// at once: at most eight answers are in memory.
const READS_MAX: usize = 2;
/// How many listed slots may turn out to be empty: with more, an endpoint lists what others do not have.
pub(crate) const NOT_FOUND_MAX: usize = 32;

/// What a slot holds.
pub(crate) trait Linked {
    fn header(&self) -> &Header;
    fn header_mut(&mut self) -> &mut Header;
}

impl Linked for Header {
    fn header(&self) -> &Header {
        self
    }

    fn header_mut(&mut self) -> &mut Header {
        self
    }
}

impl Linked for Block {
    fn header(&self) -> &Header {
        &self.header
    }

    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }
}

/// The blocks in `slots`, and those that they stand on from slot `first` on, ascending, as far as they are linked.
///
/// # Errors
/// Why not even one block can be shown, although there are some.
pub(crate) async fn linked<T, F>(
    first: u64,
    slots: Vec<Wanted>,
    read: impl Fn(Wanted) -> F + Sync,
) -> Result<Vec<T>, SolanaError>
where
    T: Linked + Send,
    F: Future<Output = Result<T, SolanaError>> + Send,
{
    let (mut shown, mut lacking): (Vec<T>, _) = (Vec::with_capacity(slots.len()), Vec::new());
    let mut reads = stream::iter(slots).map(async |wanted| (wanted, read(wanted).await)).buffered(READS_MAX);
    while let Some((wanted, next)) = reads.next().await {
        let last = shown.last().map(|last| last.header().block);
        let more = match next {
            Ok(next) => up_to(first, last, next, &read).await,
            // Only a list says that there is one: the next block stands on it and names its hash, by which it is asked
            // for, or does not.
            Err(error) if wanted.hash.is_none() && is_not_found(&error) && lacking.len() < NOT_FOUND_MAX => {
                lacking.push(error);
                continue;
            }
            Err(error) => Err(error),
        };
        match more {
            Ok(Some(more)) => shown.extend(more),
            Ok(None) => break,
            Err(error) if shown.is_empty() => return Err(error),
            // What was shown stays true; the next call asks again for the rest, and reports why.
            Err(_) => break,
        }
    }
    match lacking.into_iter().next() {
        Some(error) if shown.is_empty() => Err(error),
        Some(_) | None => Ok(shown),
    }
}

/// `next` with all blocks between `last` and it, ascending; `None` when it stands on another branch.
async fn up_to<T, F>(
    first: u64,
    last: Option<BlockRef>,
    next: T,
    read: &(impl Fn(Wanted) -> F + Sync),
) -> Result<Option<Vec<T>>, SolanaError>
where
    T: Linked + Send,
    F: Future<Output = Result<T, SolanaError>> + Send,
{
    let mut lowest = *next.header();
    let mut found = vec![next];
    loop {
        let is_missing = match last.map(|last| link(&last, &lowest)) {
            Some(Link::Stands { .. }) => false,
            Some(Link::Missing { .. }) => true,
            Some(Link::Forked) => return Ok(None),
            // What lies below the range is for the caller to link.
            None => lowest.parent.number >= first,
        };
        if !is_missing {
            found.reverse();
            return Ok(Some(found));
        }
        // Each parent lies below its child, so this ends.
        let parent = read(Wanted { slot: lowest.parent.number, hash: Some(lowest.parent.hash) }).await?;
        lowest = *parent.header();
        found.push(parent);
    }
}
