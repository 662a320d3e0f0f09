//! Following the newest blocks: connecting them, undoing reorgs, and what operators see of it.

pub(super) mod alarms;
pub(super) mod anchor;
pub(super) mod connect;
pub(super) mod cross_check;
pub(super) mod native_setting;
pub(super) mod reorg;
pub(super) mod run;
pub(super) mod status;
