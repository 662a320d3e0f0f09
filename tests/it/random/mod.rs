//! Random histories and faults, in counts that a run chooses.

pub(crate) mod faults;
pub(crate) mod forms;
pub(crate) mod histories;
pub(crate) mod integrity;
pub(crate) mod side_by_side;
