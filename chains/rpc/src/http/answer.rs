//! The body of a JSON-RPC answer, taken apart without copying what it holds.
//!
//! Promises: each answer is at the place of the call whose id it has. An answer with another id, a second one for a
//! call, and a missing one break the whole batch. A single error in the place of a batch is that batch's error. The
//! size of the body and the number of calls bound what is kept.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::http::envelope::{self, given};
use crate::http::{NodeError, Secrets};
use crate::limits::{Codes, Limit};

/// How much of an error's `data` is read to find which limit was met.
const DATA_CHARS_MAX: usize = 500;

/// The answer to one call; `null` is an answer.
pub type Answer = Result<Raw, NodeError>;

/// The text of one result, checked as JSON only for its brackets and strings. It is a part of the body that it came
/// in, which lives as long as any part of it is held. Whoever reads it parses it.
#[derive(Clone)]
pub struct Raw {
    body: Arc<String>,
    range: Range<usize>,
}

/// Why a body holds no answers.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The node refused the batch as a whole.
    Refused(NodeError),
    /// No JSON, but a text for people.
    Text(String),
    Unusable(String),
}

#[derive(serde::Deserialize)]
struct WireError<'a> {
    #[serde(default)]
    code: i64,
    #[serde(default, borrow)]
    message: Cow<'a, str>,
    #[serde(default, borrow, deserialize_with = "given")]
    data: Option<&'a RawValue>,
}

impl Raw {
    /// The text.
    pub fn get(&self) -> &str {
        &self.body[self.range.clone()]
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.range.len())
    }
}

/// The answers to `count` calls with the ids from `first_id` on, in the order of the calls.
pub(crate) fn parse(
    body: Vec<u8>,
    first_id: u64,
    count: usize,
    secrets: &Secrets,
    codes: &Codes,
) -> Result<Vec<Answer>, Broken> {
    let body = String::from_utf8(body).map_err(|_| Broken::Unusable("the answer is no UTF-8 text".to_owned()))?;
    let body = Arc::new(body);
    // One more than there are calls is enough: its id is no call's, or that of another answer.
    let envelopes = envelope::read(&body, count + 1);
    let (envelopes, is_batch) = envelopes.map_err(|error| match text(&body, secrets) {
        Some(text) => Broken::Text(text),
        None => Broken::Unusable(format!("the answer is no JSON-RPC: {error}")),
    })?;
    let mut answers: Vec<Option<Answer>> = (0..count).map(|_| None).collect();
    for envelope in &envelopes {
        let id = envelope.id.unwrap_or("null");
        let error = envelope.error.filter(|error| *error != "null").map(|error| node_error(error, secrets, codes));
        // A node that could not read the request knows no id; one that refuses a batch as a whole may answer once for
        // all of it.
        if let Some(error) = error.as_ref().filter(|_| id == "null" || !is_batch && count > 1) {
            return Err(Broken::Refused(NodeError { message: error.message.clone(), ..*error }));
        }
        let number: Option<u64> = id.trim_matches('"').parse().ok();
        let place = number.and_then(|id| usize::try_from(id.checked_sub(first_id)?).ok());
        let Some(slot) = place.and_then(|place| answers.get_mut(place)) else {
            return Err(Broken::Unusable(format!("an answer has the id {id}, which no call had")));
        };
        if slot.is_some() {
            return Err(Broken::Unusable(format!("two answers have the id {id}")));
        }
        *slot = Some(match (error, envelope.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(part_of(&body, result)),
            (None, None) => {
                return Err(Broken::Unusable(format!("the answer with the id {id} has neither result nor error")));
            }
        });
    }
    complete(answers, first_id)
}

/// What a node says in the body of a failed HTTP request, when it speaks JSON-RPC there too.
pub(crate) fn refusal(body: &str, secrets: &Secrets, codes: &Codes) -> Option<NodeError> {
    let (envelopes, _) = envelope::read(body, 1).ok()?;
    envelopes.first()?.error.map(|error| node_error(error, secrets, codes))
}

/// The text of a body that is no JSON, such as a page. `None` for an empty one, or JSON that broke off.
pub(crate) fn text(body: &str, secrets: &Secrets) -> Option<String> {
    let text = body.trim();
    let is_text = !text.is_empty() && !text.starts_with(['{', '[']);
    is_text.then(|| format!("the node says {:?}", secrets.clean(text)))
}

fn complete(answers: Vec<Option<Answer>>, first_id: u64) -> Result<Vec<Answer>, Broken> {
    if let Some((id, _)) = (first_id..).zip(&answers).find(|(_, answer)| answer.is_none()) {
        // geth reports that a batch is too large as the error of its first call, and leaves out the rest.
        let too_large = answers.into_iter().flatten().find_map(|answer| match answer {
            Err(error) if matches!(error.limit, Some(Limit::BatchTooLarge { .. })) => Some(error),
            Ok(_) | Err(_) => None,
        });
        let left_out = format!("the answer leaves out a part of the batch: the id {id}");
        return Err(too_large.map_or(Broken::Unusable(left_out), Broken::Refused));
    }
    Ok(answers.into_iter().flatten().collect())
}

fn node_error(error: &str, secrets: &Secrets, codes: &Codes) -> NodeError {
    // Some nodes write no object, or a code that is no number: then all of it is the message.
    let whole = |_| WireError { code: 0, message: Cow::Borrowed(error), data: None };
    let WireError { code, message, data } = serde_json::from_str(error).unwrap_or_else(whole);
    let data: String = data.map(RawValue::get).unwrap_or_default().chars().take(DATA_CHARS_MAX).collect();
    let limit = Limit::of(code, &format!("{message} {data}"), codes);
    NodeError { code, message: secrets.clean(&message), limit }
}

/// Where `part` stands in `body`, of which it was borrowed.
fn part_of(body: &Arc<String>, part: &str) -> Raw {
    let start = part.as_ptr().addr() - body.as_ptr().addr();
    Raw { body: Arc::clone(body), range: start..start + part.len() }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn read(body: &str, count: usize) -> Result<Vec<String>, String> {
        let secrets = Secrets::of(&"http://host/kanary".parse().unwrap(), &HeaderMap::new());
        let reported = |answer: Answer| match answer {
            Ok(raw) => raw.get().to_owned(),
            Err(error) => error.to_string(),
        };
        match parse(body.as_bytes().to_vec(), 7, count, &secrets, &Codes::NONE) {
            Ok(answers) => Ok(answers.into_iter().map(reported).collect()),
            Err(Broken::Refused(error)) => Err(format!("refused: {error}")),
            Err(Broken::Text(reason) | Broken::Unusable(reason)) => Err(reason),
        }
    }

    #[test]
    fn an_answer_stands_at_the_call_whose_id_it_has() {
        let two = r#" [{"id":8,"result":[1, 2]},{"result":null,"error":null,"id":7,"jsonrpc":"2.0"}]"#;
        assert_eq!(read(two, 2).unwrap(), ["null", "[1, 2]"]);
        assert_eq!(read(r#"{"id":"7","result":"0x1"}"#, 1).unwrap(), ["\"0x1\""]);
        assert_eq!(read(r#"[{"id":7,"result":{}}]"#, 1).unwrap(), ["{}"]);
        let refused = r#"{"id":7,"error":{"code":-1,"message":"no kanary"}}"#;
        assert_eq!(read(refused, 1).unwrap(), ["the node says \"no ***\" (code -1)"]);
    }

    #[test]
    fn of_more_answers_than_calls_one_is_enough() {
        let many = format!("[{}7]", "{},".repeat(1_000_000));
        assert_eq!(read(&many, 2).unwrap_err(), "an answer has the id null, which no call had");
        let twice = r#"[{"id":7,"result":1},{"id":8,"result":1},{"id":8,"result":1},"more"]"#;
        assert_eq!(read(twice, 2).unwrap_err(), "two answers have the id 8");
    }

    #[test]
    fn a_batch_that_does_not_fit_its_calls_is_refused_whole() {
        let cases = [
            (r#"[{"id":7,"result":1},{"id":9,"result":2}]"#, "an answer has the id 9, which no call had"),
            (r#"[{"id":7,"result":1},{"id":6,"result":2}]"#, "an answer has the id 6, which no call had"),
            (r#"[{"id":7,"result":1},{"id":7,"result":2}]"#, "two answers have the id 7"),
            (r#"[{"id":8,"result":1}]"#, "the answer leaves out a part of the batch: the id 7"),
            (r#"[{"id":7,"result":1},{"id":8}]"#, "the answer with the id 8 has neither result nor error"),
            (r#"[{"id":7,"result":1},{"result":2}]"#, "an answer has the id null, which no call had"),
            (r#"{"id":7,"result":1}"#, "the answer leaves out a part of the batch: the id 8"),
            (
                r#"{"id":7,"error":{"code":-32600,"message":"no batches"}}"#,
                "refused: the node says \"no batches\" (code -32600)",
            ),
            (r#"{"error":{"code":-32700,"message":"what?"}}"#, "refused: the node says \"what?\" (code -32700)"),
            (r#"[{"id":null,"error":"kanary"}]"#, "refused: the node says \"\\\"***\\\"\" (code 0)"),
            (
                r#"[{"id":7,"error":{"code":-32600,"message":"batch too large"}}]"#,
                "refused: the node says \"batch too large\" (code -32600)",
            ),
            ("no kanary", "the node says \"no ***\""),
            (r#"[{"id":7,"result":1},"#, "the answer is no JSON-RPC: EOF while parsing a value at line 1 column 21"),
        ];
        for (body, expected) in cases {
            assert_eq!(read(body, 2).unwrap_err(), expected, "{body}");
        }
        let secrets = Secrets(Vec::new());
        assert!(matches!(parse(vec![b'"', 0xff, b'"'], 1, 1, &secrets, &Codes::NONE), Err(Broken::Unusable(_))));
    }
}
