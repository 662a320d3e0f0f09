//! JSON bodies, strictly: a field that is unknown, repeated or of another type is refused by its name, never ignored.
//!
//! Names are `snake_case` and nothing else. All that is wrong with a body is told at once, up to a bound.

use std::fmt;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, header};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::api::problem::{ParameterError, Problem};

/// How much of what is wrong is told at once.
const ERRORS_MAX: usize = 20;

/// The fields of a request and what is wrong with them so far.
#[derive(Debug)]
pub(super) struct Body {
    values: Vec<(String, Value)>,
    errors: Vec<ParameterError>,
}

/// An object as it was sent: a name may come twice.
struct Fields(Vec<(String, Value)>);

impl Body {
    /// Takes a request's body apart; `known` are the fields that it may have. No body is an empty object.
    ///
    /// # Errors
    /// What is no JSON object at all.
    pub(super) fn parse(
        headers: &HeaderMap,
        bytes: Result<Bytes, BytesRejection>,
        known: &[&str],
    ) -> Result<Self, Problem> {
        let bytes = bytes.map_err(|_| whole("is too long or did not arrive whole"))?;
        if bytes.is_empty() {
            return Ok(Body { values: Vec::new(), errors: Vec::new() });
        }
        if !is_json(headers) {
            return Err(whole("must be sent as Content-Type: application/json"));
        }
        let Fields(sent) = serde_json::from_slice(&bytes).map_err(|_| whole("must be a JSON object"))?;
        let mut body = Body { values: Vec::new(), errors: Vec::new() };
        for (name, value) in sent {
            if !known.contains(&name.as_str()) {
                body.refuse(&name, unknown(known));
            } else if body.values.iter().any(|(other, _)| *other == name) {
                body.refuse(&name, "must not be repeated");
            } else {
                body.values.push((name, value));
            }
        }
        Ok(body)
    }

    /// A text that must be there and not be empty.
    pub(super) fn required_text(&mut self, name: &str) -> String {
        match self.optional_text(name) {
            Some(text) if !text.is_empty() => return text,
            Some(_) => self.refuse(name, "must not be empty"),
            None if self.values.iter().any(|(other, _)| other == name) => {}
            None => self.refuse(name, "is required"),
        }
        String::new()
    }

    /// A text that may be missing; `None` also when it is refused.
    pub(super) fn optional_text(&mut self, name: &str) -> Option<String> {
        self.optional(name, "must be a string", |value| value.as_str().map(str::to_owned))
    }

    /// A truth value that may be missing.
    pub(super) fn optional_bool(&mut self, name: &str) -> Option<bool> {
        self.optional(name, "must be true or false", Value::as_bool)
    }

    /// An integer up to `max` that may be missing.
    pub(super) fn optional_integer(&mut self, name: &str, max: u64) -> Option<u64> {
        let what = format!("must be an integer from 0 to {max}");
        self.optional(name, &what, |value| value.as_u64().filter(|number| *number <= max))
    }

    /// Notes what is wrong with a field.
    pub(super) fn refuse(&mut self, name: &str, detail: impl fmt::Display) {
        if self.errors.len() < ERRORS_MAX {
            // What somebody else sent is shown, but not at any length.
            let parameter = name.chars().take(64).collect();
            self.errors.push(ParameterError { parameter, detail: detail.to_string() });
        }
    }

    /// Refuses the request when anything was wrong so far.
    pub(super) fn check(&mut self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::invalid(std::mem::take(&mut self.errors))) }
    }

    fn optional<T>(&mut self, name: &str, what: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let (_, value) = self.values.iter().find(|(other, _)| other == name)?;
        let read = read(value);
        if read.is_none() {
            self.refuse(name, what);
        }
        read
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn whole(detail: &str) -> Problem {
    Problem::invalid(vec![ParameterError { parameter: "body".to_owned(), detail: detail.to_owned() }])
}

fn unknown(known: &[&str]) -> String {
    match known {
        [] => "is unknown: this request takes no fields".to_owned(),
        known => format!("is unknown: the fields are {}", known.join(", ")),
    }
}
