//! What is recorded of a block: which of its legs are whose, who paid them, and what left watched addresses.

pub(super) mod leg;
pub(super) mod movements;
pub(super) mod replace_record;
pub(super) mod senders;
pub(super) mod watch_list;
