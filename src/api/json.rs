//! Bodies of requests: JSON, strictly. A field that is unknown, repeated, missing or of another type is refused by its name.
//!
//! A field that is silently left out of account may be what the request was about; hence also `camelCase` names are refused.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, header};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use crate::api::problem::{ParameterError, Problem};

/// What is wrong with a body's fields so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<ParameterError>);

/// What arrived of a body.
pub(super) type Sent = Result<Bytes, BytesRejection>;

/// A struct that is sent as a JSON object; serde alone would take a list of its fields too.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

/// Reads a body.
pub(super) fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: Sent) -> Result<T, Problem> {
    let bytes = body.map_err(|error| refusal("body", error.body_text()))?;
    if !is_json(headers) {
        return Err(refusal("body", "must be sent as Content-Type: application/json".to_owned()));
    }
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // "." is the whole, "?" what has no name yet.
        let path = error.path().to_string();
        refusal(if [".", "?"].contains(&path.as_str()) { "body" } else { &path }, error.inner().to_string())
    });
    let Object(read) = read?;
    json.end().map_err(|error| refusal("body", error.to_string()))?;
    Ok(read)
}

/// Reads a body that may be missing: then no field was sent.
pub(super) fn parse_optional<T: DeserializeOwned + Default>(headers: &HeaderMap, body: Sent) -> Result<T, Problem> {
    if matches!(&body, Ok(bytes) if bytes.is_empty()) { Ok(T::default()) } else { parse(headers, body) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
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
