//! Where the answers are in a body: found by one scan of bytes where the text is plain, else by a JSON parser.
//!
//! The scan follows strings and brackets only. It accepts no string with a backslash, no field twice, and nothing but
//! an envelope or a list of envelopes. All else goes to the parser, which decides what is wrong. A body that holds one
//! envelope with an object, as agave writes it, is not scanned: its two ends show where the object is. Promises: where
//! the body is JSON, scan and parser find the same, or the text of the result is no JSON; never another JSON. The text
//! inside an answer may still be no JSON: whoever reads it parses it.

use std::fmt;

use memchr::memchr2;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

const LONE_BEGIN: &str = r#"{"jsonrpc":"2.0","result":"#;
const LONE_END: &str = r#","id":"#;

/// One answer as text; `null` is a text too.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) result: Option<&'a str>,
    pub(crate) error: Option<&'a str>,
}

/// `result` and `error` stay text: the caller decides which of them counts.
#[derive(serde::Deserialize)]
struct WireEnvelope<'a> {
    #[serde(default, borrow, deserialize_with = "given")]
    id: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "given")]
    result: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "given")]
    error: Option<&'a RawValue>,
}

/// A field that is there, even when it is `null`.
pub(crate) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The first `most` answers of a body, and whether they are a batch. Later ones are not kept: only the size of the
/// body is bounded, and small answers take many times as much memory as in the body.
pub(crate) fn read(body: &str, most: usize) -> Result<(Vec<Envelope<'_>>, bool), serde_json::Error> {
    if let Some(envelope) = lone(body) {
        return Ok((vec![envelope], false));
    }
    let is_batch = body.trim_start().starts_with('[');
    match scan(body, is_batch, most) {
        Some(envelopes) => Ok((envelopes, is_batch)),
        None => parse(body, is_batch, most).map(|envelopes| (envelopes, is_batch)),
    }
}

fn parse(body: &str, is_batch: bool, most: usize) -> Result<Vec<Envelope<'_>>, serde_json::Error> {
    let wire = if is_batch { batch(body, most)? } else { vec![serde_json::from_str(body)?] };
    Ok(wire.iter().map(|it| Envelope { id: text(it.id), result: text(it.result), error: text(it.error) }).collect())
}

fn batch(body: &str, most: usize) -> Result<Vec<WireEnvelope<'_>>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(body);
    let first = Batch { most }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(first)
}

struct Batch {
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Batch {
    type Value = Vec<WireEnvelope<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Batch {
    type Value = Vec<WireEnvelope<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch of answers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut answers: A) -> Result<Self::Value, A::Error> {
        let mut first = Vec::new();
        while first.len() < self.most {
            let Some(answer) = answers.next_element()? else { return Ok(first) };
            first.push(answer);
        }
        while answers.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }
}

fn text(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get)
}

/// An answer whose envelope holds an object between the version and a number, and nothing else. If there are more
/// fields between them, the result that it finds is no JSON.
fn lone(body: &str) -> Option<Envelope<'_>> {
    let (result, id) = body.trim_end().strip_prefix(LONE_BEGIN)?.strip_suffix('}')?.rsplit_once(LONE_END)?;
    let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    let is_object = result.starts_with('{') && result.ends_with('}');
    (is_number && is_object).then_some(Envelope { id: Some(id), result: Some(result), error: None })
}

/// `None` when the body is not plain.
fn scan(body: &str, is_batch: bool, most: usize) -> Option<Vec<Envelope<'_>>> {
    let mut scan = Scan { body, at: 0 };
    let mut envelopes = Vec::new();
    if is_batch {
        scan.list(b'[', b']', |scan| {
            let envelope = scan.envelope()?;
            if envelopes.len() < most {
                envelopes.push(envelope);
            }
            Some(())
        })?;
    } else {
        envelopes.push(scan.envelope()?);
    }
    scan.next().is_none().then_some(envelopes)
}

struct Scan<'a> {
    body: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    /// The next byte that is no space, without passing it.
    fn next(&mut self) -> Option<u8> {
        let rest = &self.body.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.body.as_bytes().get(self.at).copied()
    }

    fn pass(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.at += 1)
    }

    /// At least one item between `open` and `close`, with commas between them.
    fn list(&mut self, open: u8, close: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.pass(open)?;
        loop {
            item(self)?;
            match self.next()? {
                b',' => self.at += 1,
                byte if byte == close => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    fn envelope(&mut self) -> Option<Envelope<'a>> {
        let mut envelope = Envelope::default();
        self.list(b'{', b'}', |scan| {
            (scan.next()? == b'"').then_some(())?;
            let key = scan.value()?;
            scan.pass(b':')?;
            let value = scan.value()?;
            let field = match key {
                "\"id\"" => &mut envelope.id,
                "\"result\"" => &mut envelope.result,
                "\"error\"" => &mut envelope.error,
                _ => return Some(()),
            };
            field.replace(value).is_none().then_some(())
        })?;
        Some(envelope)
    }

    /// The text of the value that comes next.
    fn value(&mut self) -> Option<&'a str> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' | b'[' => self.nested()?,
            b'}' | b']' | b',' | b':' => return None,
            _ => {
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at += self.body.as_bytes()[start..].iter().position(is_end)?;
            }
        }
        self.body.get(start..self.at)
    }

    fn string(&mut self) -> Option<()> {
        let inside = self.at + 1;
        let end = inside + memchr2(b'"', b'\\', self.body.as_bytes().get(inside..)?)?;
        self.at = end + 1;
        (self.body.as_bytes()[end] == b'"').then_some(())
    }

    fn nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match *self.body.as_bytes().get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// That the scan finds what the parser finds, or leaves it to the parser.
    fn agree(body: &str) -> bool {
        let is_batch = body.trim_start().starts_with('[');
        if let (Some(lone), Ok(parsed)) = (lone(body), parse(body, false, 1)) {
            let is_json = serde_json::from_str::<IgnoredAny>(lone.result.unwrap()).is_ok();
            assert!(!is_json || parsed == [lone], "{body}");
        }
        let (scanned, parsed) = (scan(body, is_batch, usize::MAX), parse(body, is_batch, usize::MAX));
        if let (Some(scanned), Ok(parsed)) = (&scanned, &parsed) {
            assert_eq!(scanned, parsed, "{body}");
        }
        scanned.is_some() && parsed.is_ok()
    }

    #[test]
    fn the_scan_takes_what_nodes_write() {
        let taken = [
            r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#,
            r#" [ {"id" : "7", "result" : {"a":[1,{"b":"]}"}],"c":null} , "jsonrpc":"2.0"} ,{"id":8,"error":{"code":-1}} ] "#,
            r#"[{"id":1,"result":null},{"id":2,"result":[]},{"id":3,"result":true,"error":null}]"#,
            "{\n\t\"id\": 1,\r\n \"result\": 12.5e3\n}\n",
        ];
        for body in taken {
            assert!(agree(body), "{body}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        let left = [
            r#"{"id":1,"result":"a\"b"}"#,
            r#"{"id":1,"id":2,"result":1}"#,
            r#"{"\u0069d":1,"result":1}"#,
            "[]",
            "{}",
            "[1]",
            r#"{"id":1,"result":1}}"#,
            r#"{"id":1 "result":1}"#,
            r#"{"id":1,"result":1,}"#,
            r#"{"id":1,"result":}"#,
            r#"{"id":1,"result":[1,2}"#,
            r#"[{"id":1,"result":1},"#,
            r#"[{"id":1,"result":"1}]"#,
            "",
            " ",
            "null",
        ];
        for body in left {
            assert_eq!(scan(body, body.starts_with('['), usize::MAX), None, "{body}");
        }
    }

    #[test]
    fn of_an_object_alone_the_ends_report_where_it_stands() {
        for end in ["", "\n"] {
            let body = format!("{}{end}", r#"{"jsonrpc":"2.0","result":{"a":[{"id":1},"}"],"id":2},"id":37}"#);
            let reported = Envelope { id: Some("37"), result: Some(r#"{"a":[{"id":1},"}"],"id":2}"#), error: None };
            assert!(agree(&body));
            assert_eq!((lone(&body), read(&body, 1).unwrap()), (Some(reported.clone()), (vec![reported], false)));
        }
        let others = [
            r#"{"jsonrpc":"2.0","result":[{}],"id":37}"#,
            r#"{"jsonrpc":"2.0","result":null,"id":37}"#,
            r#"{"jsonrpc":"2.0","error":{},"id":37}"#,
            r#"{"jsonrpc":"2.0","result":{},"id":"37"}"#,
            r#"{"jsonrpc":"2.0","result":{},"id":}"#,
            r#"{"jsonrpc":"2.0","result":{},"id":37,"more":1}"#,
            r#"{"jsonrpc":"2.0","id":37,"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{"a":1"#,
            r#" {"jsonrpc":"2.0","result":{},"id":37}"#,
        ];
        assert!(others.iter().all(|body| lone(body).is_none()));
        for more in [r#""error":{"code":1}"#, r#""x":{}"#, r#""id":36,"y":{}"#] {
            let body = format!(r#"{{"jsonrpc":"2.0","result":{{}},{more},"id":37}}"#);
            let odd = lone(&body).unwrap().result.unwrap();
            assert!(serde_json::from_str::<IgnoredAny>(odd).is_err(), "{odd}");
            assert!(agree(&body) || more.contains("36"));
        }
    }

    #[test]
    fn of_more_answers_than_are_wanted_the_first_are_kept() {
        let plain = format!("[{}{{\"id\":1}}]", "{\"id\":1},".repeat(100_000));
        let odd = format!("[{}{{}}]", "{},".repeat(100_000));
        assert_eq!(scan(&plain, true, 3).unwrap().len(), 3);
        assert_eq!(scan(&odd, true, 3), None, "left to the parser");
        for body in [&plain, &odd] {
            assert_eq!(parse(body, true, 3).unwrap().len(), 3);
        }
        assert_eq!(read("[{},{}]", 3).unwrap().0.len(), 2);
        // It must be JSON to its end all the same.
        assert!(read("[{},{},{},", 2).is_err() && read("[{}] 7", 3).is_err());
    }

    /// Pieces of which answers and broken answers are made.
    const PIECES: [&str; 29] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "\n",
        "\"id\":",
        "\"result\":",
        "\"error\":",
        "1",
        "null",
        "true",
        "\"0x1\"",
        "{\"id\":1,\"result\":",
        "{\"id\":2,\"error\":",
        "[{",
        "}]",
        "},{",
        "\"x\":{\"y\":[1,2]}",
        "\"é\"",
        "-0.5",
        "\u{1}",
        "{\"jsonrpc\":\"2.0\",\"result\":{",
        "},\"id\":7}",
        ",\"id\":8",
    ];

    proptest! {
        #[test]
        fn scan_and_parser_never_differ(picks in prop::collection::vec(0..PIECES.len(), 0..24)) {
            let body: String = picks.into_iter().map(|pick| PIECES[pick]).collect();
            agree(&body);
        }

        #[test]
        fn scan_and_parser_never_differ_about_a_batch_with_a_flaw(
            answers in prop::collection::vec((any::<u8>(), any::<bool>()), 1..4), at in any::<prop::sample::Index>(), pick in 0..PIECES.len(),
        ) {
            let answer = |(id, nested): (u8, bool)| {
                let result = if nested { r#"[{"hash":"0x12","logs":[{"data":"0x"}]},{}]"# } else { "\"0x5\"" };
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            };
            let whole = format!("[{}]", answers.into_iter().map(answer).collect::<Vec<_>>().join(","));
            prop_assert!(agree(&whole));
            let at = at.index(whole.len());
            let piece = PIECES[pick];
            agree(&format!("{}{piece}{}", &whole[..at], &whole[at..]));
            agree(&format!("{}{piece}{}", &whole[..at], &whole[at + 1..]));
            agree(&whole[..at]);
        }
    }
}
