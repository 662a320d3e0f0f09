//! Bodies of requests: JSON, strictly. A field that is unknown, repeated, missing or of another type is refused by its name.
//!
//! A field that is silently left out of account may be what the request was about; hence also `camelCase` names are refused.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use serde::de::DeserializeOwned;

use crate::api::problem::{ParameterError, Problem};

/// What is wrong with a body's fields so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<ParameterError>);

/// Reads a body.
pub(super) fn parse<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    let bytes = body.map_err(|error| refusal("body", error.body_text()))?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        refusal(if path == "." { "body" } else { &path }, error.inner().to_string())
    })?;
    json.end().map_err(|error| refusal("body", error.to_string()))?;
    Ok(read)
}

impl Faults {
    /// The value, or a note of what is wrong with `field`.
    pub(super) fn take<T, E: ToString>(&mut self, field: impl ToString, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.refuse(field, error)).ok()
    }

    pub(super) fn refuse(&mut self, field: impl ToString, detail: impl ToString) {
        self.0.push(ParameterError { parameter: field.to_string(), detail: detail.to_string() });
    }

    /// The value that was read without a fault.
    pub(super) fn check<T>(self, read: Option<T>) -> Result<T, Problem> {
        match read {
            Some(read) if self.0.is_empty() => Ok(read),
            Some(_) | None => Err(Problem::invalid(self.0)),
        }
    }
}

/// The refusal of one field.
pub(super) fn refusal(field: &str, detail: String) -> Problem {
    Problem::invalid(vec![ParameterError { parameter: field.to_owned(), detail }])
}
