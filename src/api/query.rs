//! Query parameters, strictly: a parameter that is unknown, repeated or unreadable is refused by its name, never
//! ignored.
//!
//! A filter that is silently not applied shows other people's money; hence `camelCase` names and empty values are
//! refused too. All faults of a request are reported at once, up to a bound.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::api::problem::{ParameterError, Problem};

/// How many faults of a request are reported at once, of a body too.
pub(super) const ERRORS_MAX: usize = 20;

/// The parameters of a request and their faults so far.
#[derive(Debug)]
pub(super) struct Query {
    values: BTreeMap<&'static str, String>,
    lists: BTreeMap<&'static str, Vec<String>>,
    errors: Vec<ParameterError>,
}

impl Query {
    /// Splits a request's query; `known` are the names that it may have.
    pub(super) fn parse(raw: Option<&str>, known: &[&'static str]) -> Self {
        Query::parse_with_lists(raw, known, &[])
    }

    /// As [`Query::parse`]; those of the known ones that are in `lists` may be repeated.
    pub(super) fn parse_with_lists(raw: Option<&str>, known: &[&'static str], lists: &[&'static str]) -> Self {
        let mut query = Query { values: BTreeMap::new(), lists: BTreeMap::new(), errors: Vec::new() };
        for (name, value) in url::form_urlencoded::parse(raw.unwrap_or_default().as_bytes()) {
            let Some(known_name) = known.iter().find(|known| **known == name) else {
                query.refuse(&name, unknown(known));
                continue;
            };
            if lists.contains(known_name) {
                query.lists.entry(known_name).or_default().push(value.into_owned());
            } else if query.values.contains_key(known_name) {
                query.refuse(known_name, "must not be repeated");
            } else {
                query.values.insert(known_name, value.into_owned());
            }
        }
        query
    }

    /// The value of a parameter that may be missing, as `read` reads it; `None` also if it is refused.
    pub(super) fn optional<T, E: Display>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.values.get(name)?;
        match read(value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(name, error);
                None
            }
        }
    }

    /// The values of a parameter that may be repeated, at most `max` of them, as `read` reads each.
    pub(super) fn list<T, E: Display>(
        &mut self,
        name: &'static str,
        max: usize,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let values = self.lists.remove(name).unwrap_or_default();
        if values.len() > max {
            self.refuse(name, format!("must not be sent more than {max} times"));
            return Vec::new();
        }
        let read = values.iter().map(|value| read(value)).collect::<Result<_, E>>();
        read.unwrap_or_else(|error| {
            self.refuse(name, error);
            Vec::new()
        })
    }

    /// The value of a required parameter; the default value if it is refused.
    pub(super) fn required<T: Default, E: Display>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> T {
        if !self.values.contains_key(name) {
            self.refuse(name, "is required");
        }
        self.optional(name, read).unwrap_or_default()
    }

    /// Notes a fault of a parameter.
    pub(super) fn refuse(&mut self, name: &str, detail: impl Display) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(ParameterError { parameter: name.to_owned(), detail: detail.to_string() });
        }
    }

    /// Refuses the request if there was any fault so far.
    pub(super) fn check(&mut self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::invalid(std::mem::take(&mut self.errors))) }
    }
}

/// A text with no character that a stored text cannot have: PostgreSQL refuses a NUL, and U+FFFD shows that broken
/// UTF-8 was decoded.
pub(super) fn text(value: &str) -> Result<String, &'static str> {
    if value.is_empty() {
        Err("must not be empty")
    } else if value.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER) {
        Err("must be UTF-8 without control characters")
    } else {
        Ok(value.to_owned())
    }
}

/// An integer in its canonical form, from 1 to `max`.
pub(super) fn limit(value: &str, max: u8) -> Result<u8, String> {
    match value.parse::<u8>() {
        Ok(limit) if (1..=max).contains(&limit) && limit.to_string() == value => Ok(limit),
        Ok(_) | Err(_) => Err(format!("must be an integer from 1 to {max}")),
    }
}

/// An integer in its canonical form, from 0 to `max`.
pub(super) fn integer(value: &str, max: u64) -> Result<u64, String> {
    match value.parse::<u64>() {
        Ok(number) if number <= max && number.to_string() == value => Ok(number),
        Ok(_) | Err(_) => Err(format!("must be an integer from 0 to {max}")),
    }
}

fn unknown(known: &[&str]) -> String {
    match known {
        [] => "is unknown: this request takes no parameters".to_owned(),
        known => format!("is unknown: the parameters are {}", known.join(", ")),
    }
}
