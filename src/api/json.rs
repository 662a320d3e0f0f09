//! Bodies of requests: JSON, strictly. A field that is unknown, repeated, missing or of another type is refused by its
//! name.
//!
//! A field that is silently ignored may be what the request was about; hence `camelCase` names are refused too.
//! Messages of serde are for programmers: they name types of Rust and quote the input. Clients get the API's own
//! messages.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, header};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;

use crate::api::problem::{ParameterError, Problem};
use crate::api::query::ERRORS_MAX;

/// What is wrong with a body's fields so far.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<ParameterError>);

/// The bytes of a body, if they arrived.
pub(super) type Sent = Result<Bytes, BytesRejection>;

/// A struct that is sent as a JSON object. serde alone would also take a list of its fields.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

/// Reads a body.
pub(super) fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: Sent) -> Result<T, Problem> {
    let bytes = body.map_err(|_| cut_off())?;
    if !is_json(headers) {
        return Err(refusal("body", "must be sent as Content-Type: application/json".to_owned()));
    }
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    let Object(read) = read.map_err(|error| untaken(&error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| refusal("body", format!("must be one object, and goes on {}", place(&error))))?;
    Ok(read)
}

/// A field that may be left out. Unlike serde's own `Option` it does not take `null`.
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a body that may be missing; a missing one has no fields.
pub(super) fn parse_optional<T: DeserializeOwned + Default>(headers: &HeaderMap, body: Sent) -> Result<T, Problem> {
    if matches!(&body, Ok(bytes) if bytes.is_empty()) { Ok(T::default()) } else { parse(headers, body) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// The refusal of a body that cannot be read, at this `path` in it.
fn untaken(path: &str, error: &serde_json::Error) -> Problem {
    match error.classify() {
        Category::Eof => refusal("body", "must be an object, and ends before one does".to_owned()),
        Category::Syntax | Category::Io => refusal("body", format!("cannot be read as JSON {}", place(error))),
        Category::Data => {
            let said = error.to_string();
            let (field, detail) = fault(said.split(" at line ").next().unwrap_or_default());
            // "." is the whole body, "?" a field without a name yet.
            let path = Some(path).filter(|path| ![".", "?"].contains(path));
            // If a field is unknown, the path ends with its name already.
            let field = field.filter(|field| path.is_none_or(|path| !path.ends_with(field)));
            let named = [path, field].into_iter().flatten().collect::<Vec<_>>().join(".");
            refusal(if named.is_empty() { "body" } else { &named }, detail)
        }
    }
}

fn place(error: &serde_json::Error) -> String {
    format!("from line {}, column {} on", error.line(), error.column())
}

/// The field that serde's message is about, if it names one, and our message for it.
fn fault(said: &str) -> (Option<&str>, String) {
    // Every second piece stood in backquotes: first the field, then the fields that are known.
    let mut named = said.split('`').skip(1).step_by(2);
    if said.starts_with("missing field") {
        (named.next(), "is required".to_owned())
    } else if said.starts_with("duplicate field") {
        (named.next(), "must not be repeated".to_owned())
    } else if said.starts_with("unknown field") {
        let (field, known) = (named.next(), named.collect::<Vec<_>>());
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("they are {}", known.join(", ")) };
        (field, format!("is no field of this object: {known}"))
    } else {
        let wanted = match said.rsplit_once(", expected ").map(|(_, wanted)| wanted) {
            Some("u64") => "an integer of at least 0, without a fraction",
            Some("a boolean") => "true or false",
            Some("a sequence") => "a list",
            Some(wanted @ ("a string" | "an object")) => wanted,
            Some(_) | None => "as the API's document says",
        };
        (None, format!("must be {wanted}"))
    }
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
    /// The value; if there is none, notes what is wrong with `field`.
    pub(super) fn take<T, E: ToString>(&mut self, field: impl ToString, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| self.refuse(field, error)).ok()
    }

    pub(super) fn refuse(&mut self, field: impl ToString, detail: impl ToString) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(ParameterError { parameter: field.to_string(), detail: detail.to_string() });
        }
    }

    /// The value, if no field had a fault.
    pub(super) fn check<T>(self, read: Option<T>) -> Result<T, Problem> {
        match read {
            Some(read) if self.0.is_empty() => Ok(read),
            Some(_) | None => Err(Problem::invalid(self.0)),
        }
    }
}

/// The refusal of a body that broke off, or whose chunks cannot be read.
pub(super) fn cut_off() -> Problem {
    refusal("body", "did not arrive whole; send it again".to_owned())
}

/// The refusal of one field.
pub(super) fn refusal(field: &str, detail: String) -> Problem {
    Problem::invalid(vec![ParameterError { parameter: field.to_owned(), detail }])
}
