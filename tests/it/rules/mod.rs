//! Rules of the house: floors, documents, names, and a test for each row of our catalogue of failures.

pub(crate) mod decisions;
pub(crate) mod docs;
pub(crate) mod glossary;
pub(crate) mod layers;
pub(crate) mod rows;
pub(crate) mod vectors;
