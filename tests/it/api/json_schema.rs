//! Whether a value fits a schema of `openapi.json`: the keywords that this document uses, and no others. An unknown one
//! fails the test, so that none is passed over.

use regex::Regex;
use serde_json::Value;

/// Words that say nothing of the value.
const SAID_ONLY: [&str; 5] = ["description", "default", "x-landfall-extension", "properties", "required"];

/// Asserts that `value` is what `schema` says, in this document.
pub(crate) fn assert_valid(document: &Value, schema: &Value, value: &Value, what: &str) {
    let faults = faults(document, schema, value, "");
    assert!(faults.is_empty(), "{what}: {faults:#?} in {value}");
}

/// What of `value`, which stands at `place`, is not as `schema` says.
pub(crate) fn faults(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (keyword, wanted) in schema.as_object().unwrap() {
        let is_so = match keyword.as_str() {
            "$ref" => {
                let target = document.pointer(wanted.as_str().unwrap().trim_start_matches('#')).unwrap();
                found.extend(faults(document, target, value, place));
                true
            }
            "oneOf" => {
                let fits = |schema: &&Value| faults(document, schema, value, place).is_empty();
                wanted.as_array().unwrap().iter().filter(fits).count() == 1
            }
            "type" => match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind.as_str().unwrap(), value)),
                kind => is_of(kind.as_str().unwrap(), value),
            },
            "enum" => wanted.as_array().unwrap().contains(value),
            "format" => is_formed(wanted.as_str().unwrap(), value),
            "pattern" => value.as_str().is_none_or(|text| Regex::new(wanted.as_str().unwrap()).unwrap().is_match(text)),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() >= size(wanted)),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() <= size(wanted)),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() >= size(wanted)),
            "maxItems" => value.as_array().is_none_or(|items| items.len() <= size(wanted)),
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(faults(document, wanted, item, &format!("{place}/{at}")));
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(wanted, false);
                found.extend(fields(document, schema, value, place));
                true
            }
            said => {
                assert!(SAID_ONLY.contains(&said), "{said} is not known here");
                true
            }
        };
        if !is_so {
            found.push(format!("{place} is not as {keyword} {wanted} says"));
        }
    }
    let is_open = schema.get("properties").is_some() && schema.get("additionalProperties").is_none();
    if is_open {
        found.extend(known_fields(document, schema, value, place));
    }
    found
}

/// As `additionalProperties: false` says: no field but these.
fn fields(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let known = |name: &str| schema["properties"].get(name).is_some();
    let names = value.as_object().into_iter().flat_map(|fields| fields.keys());
    let mut found: Vec<String> =
        names.filter(|name| !known(name)).map(|name| format!("{place}/{name} is unknown")).collect();
    found.extend(known_fields(document, schema, value, place));
    found
}

fn known_fields(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.map(|name| name.as_str().unwrap()).filter(|name| value.get(name).is_none());
    let mut found: Vec<String> = missing.map(|name| format!("{place}/{name} is missing")).collect();
    for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = value.get(name) {
            found.extend(faults(document, schema, value, &format!("{place}/{name}")));
        }
    }
    found
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("a type {other}"),
    }
}

fn is_formed(format: &str, value: &Value) -> bool {
    let Some(text) = value.as_str() else { return true };
    match format {
        "uuid" => text.len() == 36 && text.parse::<uuid::Uuid>().is_ok(),
        "date-time" => text.ends_with('Z') && chrono::DateTime::parse_from_rfc3339(text).is_ok(),
        "uri" => url::Url::parse(text).is_ok(),
        // Their patterns say what they are.
        "evm-address" | "solana-address" => true,
        other => panic!("a format {other}"),
    }
}

fn size(wanted: &Value) -> usize {
    usize::try_from(wanted.as_u64().unwrap()).unwrap()
}

#[test]
fn what_a_schema_forbids_is_found() {
    let document = serde_json::json!({ "components": { "schemas": { "Small": { "type": "integer", "minimum": 1, "maximum": 9 } } } });
    let schema = serde_json::json!({
        "type": "object",
        "required": ["n", "text"],
        "properties": {
            "n": { "$ref": "#/components/schemas/Small" },
            "text": { "type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3 },
            "list": { "type": "array", "maxItems": 1, "items": { "enum": ["A"] } },
            "at": { "type": "string", "format": "date-time" },
        },
        "additionalProperties": false,
    });
    let faults = |value: Value| faults(&document, &schema, &value, "").len();
    let good = serde_json::json!({ "n": 5, "text": "abc", "list": ["A"], "at": "2026-01-31T12:16:31Z" });
    assert_eq!(faults(good.clone()), 0);
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        faults(changed)
    };
    for (name, value) in [
        ("n", serde_json::json!(0)),
        ("n", serde_json::json!(10)),
        ("n", serde_json::json!("5")),
        ("text", serde_json::json!("a")),
        ("text", serde_json::json!("abcd")),
        ("text", serde_json::json!("AB")),
        ("list", serde_json::json!(["A", "A"])),
        ("list", serde_json::json!(["B"])),
        ("at", serde_json::json!("yesterday")),
        ("more", serde_json::json!(1)),
    ] {
        assert_eq!(with(name, value.clone()), 1, "{name}: {value}");
    }
    assert_eq!(faults(serde_json::json!({ "n": 5 })), 1, "text is missing");
}
