//! The traces of a block as geth's `callTracer` reports them: each frame holds the frames that it called.
//!
//! Calls are nested up to 1024 deep, and their JSON twice as deep; serde_json follows 128. So this is a scan with its
//! own stack, which reads the text once and skips what it does not need. The text is known to be JSON, because it was
//! cut out of an answer that was. So commas and colons are not checked. Promises: no recursion and no panic, whatever
//! the text. What is kept is larger than the text by a few frames at most. A field that is reported twice, or is not
//! of its type, is an error. The order of the fields of a frame does not matter.

use alloy::primitives::{Address, B256};
use memchr::memchr2;

use crate::hex::Amount;
use crate::traces::frames::{self, Act, Frame, Malformed, SET_ASIDE_MAX, Trace};

const BETWEEN: [char; 6] = [',', ':', ' ', '\n', '\r', '\t'];

/// How many frames may be nested: the root frame, 1024 more, and the call in the last of them, which fails because it
/// is one too deep (EIP-150; yellow paper, section 8).
const DEPTH_MAX: usize = 1026;

/// The traces of an answer to `debug_traceBlockByHash`, of a block with `count` transactions; one more is enough to
/// see that it is too many.
pub(crate) fn read(json: &str, count: usize) -> Result<Vec<Trace>, Malformed> {
    let mut scan = Scan(json);
    if scan.next()? != Token::Open(b'[') {
        return Err(unexpected("the answer"));
    }
    let mut traces = Vec::new();
    while traces.len() <= count {
        match scan.next()? {
            Token::Open(b'{') => traces.push(transaction(&mut scan)?),
            Token::Close(b']') => break,
            Token::Open(_) | Token::Close(_) | Token::Text(_) | Token::Bare(_) => return Err(unexpected("a trace")),
        }
    }
    Ok(traces)
}

/// The trace of one transaction: an answer to `debug_traceTransaction`.
pub(crate) fn read_one(tx: B256, json: &str) -> Result<Trace, Malformed> {
    match result(&mut Scan(json))? {
        Some(frames) => Ok(Trace { tx: Some(tx), frames: frames?, error: None }),
        None => Err(unexpected("the answer")),
    }
}

/// `{"txHash": .., "result": frame}`, or an error in place of the frame. A malformed frame is an error of this
/// transaction alone: whether its trace is needed is not known here.
fn transaction(scan: &mut Scan<'_>) -> Result<Trace, Malformed> {
    let (mut tx, mut error, mut frames) = (None, None, None);
    while let Some(key) = scan.key()? {
        match key {
            "txHash" => once(&mut tx, scan.text(key)?, key)?,
            "error" => once(&mut error, scan.text(key)?, key)?,
            "result" => once(&mut frames, result(scan)?, key)?,
            _ => scan.skip()?,
        }
    }
    let tx = tx.map(|hash: &str| hash.parse::<B256>().map_err(|_| unexpected("txHash"))).transpose()?;
    let (frames, malformed) = match frames {
        Some(Ok(frames)) => (frames, None),
        Some(Err(Malformed(reason))) => (Vec::new(), Some(reason)),
        None => (Vec::new(), None),
    };
    Ok(Trace { tx, frames, error: error.map(str::to_owned).or(malformed) })
}

/// The frames of a transaction, or why they are malformed; in both cases the scan is behind them.
fn result(scan: &mut Scan<'_>) -> Result<Option<Result<Vec<Frame>, Malformed>>, Malformed> {
    let whole = scan.0;
    match scan.next()? {
        Token::Open(b'{') => {
            let frames = nested(scan);
            if frames.is_err() {
                *scan = Scan(whole);
                scan.skip()?;
            }
            Ok(Some(frames))
        }
        Token::Bare("null") => Ok(None),
        Token::Open(_) | Token::Close(_) | Token::Text(_) | Token::Bare(_) => Err(unexpected("result")),
    }
}

/// The frames of an object whose opening brace has been read, in their order.
fn nested(scan: &mut Scan<'_>) -> Result<Vec<Frame>, Malformed> {
    // Each gets its place when it opens, and is judged when it closes: only open frames are kept as reported.
    let mut frames = vec![None];
    let mut open = vec![FrameSoFar::default()];
    let mut set_aside = 0;
    while let Some(current) = open.last_mut() {
        match scan.key()? {
            None => {
                if let Some(reported) = open.pop() {
                    let place = reported.place;
                    let frame = reported.frame()?;
                    set_aside += usize::from(frame.act == Act::Unknown);
                    if set_aside > SET_ASIDE_MAX {
                        return Err(frames::many_set_aside());
                    }
                    frames[place] = Some(frame);
                }
                if !open.is_empty() {
                    enter(scan, &mut frames, &mut open)?;
                }
            }
            Some("calls") => match scan.next()? {
                Token::Open(b'[') => {
                    once(&mut current.calls, Some(()), "calls")?;
                    enter(scan, &mut frames, &mut open)?;
                }
                Token::Bare("null") => {}
                Token::Open(_) | Token::Close(_) | Token::Text(_) | Token::Bare(_) => return Err(unexpected("calls")),
            },
            Some(key) => current.take(key, scan)?,
        }
    }
    frames.into_iter().collect::<Option<_>>().ok_or_else(|| unexpected("a call"))
}

/// Within a list of calls: opens its next frame, if there is one more.
fn enter<'a>(
    scan: &mut Scan<'a>,
    frames: &mut Vec<Option<Frame>>,
    open: &mut Vec<FrameSoFar<'a>>,
) -> Result<(), Malformed> {
    match scan.next()? {
        Token::Open(b'{') if open.len() == DEPTH_MAX => {
            Err(Malformed(format!("more than {DEPTH_MAX} frames stand in each other")))
        }
        Token::Open(b'{') => {
            let parent = open.last().map(|around| around.place);
            open.push(FrameSoFar { place: frames.len(), parent, ..FrameSoFar::default() });
            frames.push(None);
            Ok(())
        }
        Token::Close(b']') => Ok(()),
        Token::Open(_) | Token::Close(_) | Token::Text(_) | Token::Bare(_) => Err(unexpected("a call")),
    }
}

/// What is reported of a frame so far.
#[derive(Default)]
struct FrameSoFar<'a> {
    /// Where its frame stands among those of the transaction.
    place: usize,
    parent: Option<usize>,
    kind: Option<&'a str>,
    from: Option<&'a str>,
    to: Option<&'a str>,
    value: Option<&'a str>,
    error: Option<&'a str>,
    calls: Option<()>,
}

impl<'a> FrameSoFar<'a> {
    fn take(&mut self, key: &str, scan: &mut Scan<'a>) -> Result<(), Malformed> {
        let field = match key {
            "type" => &mut self.kind,
            "from" => &mut self.from,
            "to" => &mut self.to,
            "value" => &mut self.value,
            "error" => &mut self.error,
            _ => return scan.skip(),
        };
        once(field, scan.text(key)?, key)
    }

    fn frame(self) -> Result<Frame, Malformed> {
        let act = match self.kind {
            Some("CALL") => Act::Call,
            Some("CREATE" | "CREATE2") => Act::Create,
            Some("SELFDESTRUCT") => Act::Destroy,
            Some("DELEGATECALL" | "CALLCODE") => Act::Borrow,
            Some("STATICCALL") => Act::Look,
            Some(_) | None => Act::Unknown,
        };
        let address = |text: &str| text.parse::<Address>().map_err(|_| Malformed(format!("{text:?} is no address")));
        let value = |text| Amount::parse(text).map_err(|error| Malformed(format!("the value {text:?}: {error}")));
        let [from, to] = [self.from.map(address).transpose()?, self.to.map(address).transpose()?];
        let value = self.value.map(value).transpose()?.map(|value| value.0).unwrap_or_default();
        Ok(Frame { parent: self.parent, act, from, to, value, failed: self.error.is_some() })
    }
}

#[derive(PartialEq, Eq)]
enum Token<'a> {
    Open(u8),
    Close(u8),
    /// The text between two quotation marks, escapes as they are.
    Text(&'a str),
    /// A number, `true`, `false` or `null`.
    Bare(&'a str),
}

/// The text that is still to be read.
struct Scan<'a>(&'a str);

impl<'a> Scan<'a> {
    fn next(&mut self) -> Result<Token<'a>, Malformed> {
        let rest = self.0.trim_start_matches(BETWEEN);
        let Some(first) = rest.bytes().next() else { return Err(Malformed("the trace breaks off".to_owned())) };
        let (token, length) = match first {
            b'{' | b'[' => (Token::Open(first), 1),
            b'}' | b']' => (Token::Close(first), 1),
            b'"' => {
                let text = quoted(rest)?;
                (Token::Text(text), text.len() + 2)
            }
            _ => {
                let ends = |c: char| BETWEEN.contains(&c) || matches!(c, '{' | '}' | '[' | ']' | '"');
                let bare = rest.split(ends).next().unwrap_or(rest);
                (Token::Bare(bare), bare.len())
            }
        };
        self.0 = rest.get(length..).unwrap_or_default();
        Ok(token)
    }

    /// The next key of an object; `None` at its end.
    fn key(&mut self) -> Result<Option<&'a str>, Malformed> {
        match self.next()? {
            // An escaped key could hide an error from us.
            Token::Text(key) if key.contains('\\') => Err(unexpected("a key")),
            Token::Text(key) => Ok(Some(key)),
            Token::Close(b'}') => Ok(None),
            Token::Open(_) | Token::Close(_) | Token::Bare(_) => Err(unexpected("a key")),
        }
    }

    /// The text of field `key`; `None` for null.
    fn text(&mut self, key: &str) -> Result<Option<&'a str>, Malformed> {
        match self.next()? {
            // Ambiguous: an empty error may be one or none.
            Token::Text("") => Err(unexpected(key)),
            Token::Text(text) => Ok(Some(text)),
            Token::Bare("null") => Ok(None),
            Token::Open(_) | Token::Close(_) | Token::Bare(_) => Err(unexpected(key)),
        }
    }

    /// Passes over one value.
    fn skip(&mut self) -> Result<(), Malformed> {
        let mut depth = 0_usize;
        loop {
            match self.next()? {
                Token::Open(_) => depth += 1,
                Token::Close(_) => depth = depth.checked_sub(1).ok_or_else(|| unexpected("a value"))?,
                Token::Text(_) | Token::Bare(_) => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// The text between the quotation mark that `text` begins with and the next one that is not escaped.
fn quoted(text: &str) -> Result<&str, Malformed> {
    let mut at = 1;
    loop {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        let Some(found) = memchr2(b'"', b'\\', rest) else { return Err(unexpected("a text")) };
        at += found;
        if text.as_bytes().get(at) == Some(&b'"') {
            return text.get(1..at).ok_or_else(|| unexpected("a text"));
        }
        at += 2;
    }
}

/// Sets a field that must not have been set; null sets nothing.
fn once<T>(field: &mut Option<T>, value: Option<T>, key: &str) -> Result<(), Malformed> {
    if value.is_some() && field.is_some() {
        return Err(Malformed(format!("{key} is told twice")));
    }
    *field = value.or(field.take());
    Ok(())
}

fn unexpected(what: &str) -> Malformed {
    Malformed(format!("{what} is not what a call tracer tells"))
}

#[cfg(test)]
mod tests {
    use landfall_chain::U256;
    use proptest::prelude::*;

    use super::*;

    /// A frame and what is inside, as a test wants it reported.
    #[derive(Clone, Debug)]
    struct Call {
        kind: usize,
        value: u64,
        failed: bool,
        /// Which of the fields stands first, and whether fields that nobody reads stand between.
        turn: usize,
        calls: Vec<Call>,
    }

    const KINDS: [(&str, Act); 7] = [
        ("CALL", Act::Call),
        ("CREATE", Act::Create),
        ("CREATE2", Act::Create),
        ("SELFDESTRUCT", Act::Destroy),
        ("DELEGATECALL", Act::Borrow),
        ("CALLCODE", Act::Borrow),
        ("STATICCALL", Act::Look),
    ];

    fn calls() -> impl Strategy<Value = Call> {
        let leaf = (0..KINDS.len(), any::<u64>(), any::<bool>(), 0..16_usize);
        let call = |calls| move |(kind, value, failed, turn)| Call { kind, value, failed, turn, calls };
        let call = move |(fields, calls): (_, Vec<Call>)| call(calls)(fields);
        let leaf = leaf.prop_map(move |fields| call((fields, Vec::new())));
        leaf.prop_recursive(12, 60, 4, move |inner| {
            let fields = (0..KINDS.len(), any::<u64>(), any::<bool>(), 0..16_usize);
            (fields, prop::collection::vec(inner, 0..4)).prop_map(call)
        })
    }

    fn text(call: &Call, out: &mut String) {
        let mut inside = String::new();
        for (index, call) in call.calls.iter().enumerate() {
            inside += if index == 0 { "" } else { " , " };
            text(call, &mut inside);
        }
        let address = |byte: u64| format!("0x{}", format!("{:02x}", byte & 0xff).repeat(20));
        let mut fields = vec![
            format!("\"type\":\"{}\"", KINDS[call.kind].0),
            format!("\"from\" : \"{}\"", address(call.value)),
            format!("\"to\":\"{}\"", address(call.value >> 8)),
            format!("\"value\":\"{:#x}\"", call.value),
            if call.failed { "\"error\":\"a \\\"b\\\" {c\"".to_owned() } else { "\"error\":null".to_owned() },
            if call.calls.is_empty() { "\"calls\":null".to_owned() } else { format!("\"calls\": [ {inside}]") },
            "\"logs\":[{\"calls\":[{\"value\":\"0x1\"}]}, -1.5e3, true, \"]\\\\\"]".to_owned(),
        ];
        fields.truncate(if call.turn >= 8 { 7 } else { 6 });
        let count = fields.len();
        fields.rotate_left(call.turn % count);
        *out += &format!("{{{}}}", fields.join(",\n"));
    }

    fn expected(call: &Call, parent: Option<usize>, out: &mut Vec<Frame>) {
        let address = |byte: u64| Some(Address::repeat_byte(u8::try_from(byte & 0xff).unwrap()));
        let (ends, act) = ([address(call.value), address(call.value >> 8)], KINDS[call.kind].1);
        let [from, to] = ends;
        out.push(Frame { parent, act, from, to, value: U256::from(call.value), failed: call.failed });
        let here = out.len() - 1;
        call.calls.iter().for_each(|call| expected(call, Some(here), out));
    }

    #[test]
    fn what_is_no_frame_is_counted_when_its_brace_closes_and_what_comes_behind_too_many_is_not_kept() {
        let reason = |json: &str| read(json, 1).map(|traces| traces.into_iter().next_back().and_then(|it| it.error));
        let many = "{},".repeat(100_000);
        // A second list of calls would be an error too, if the frames before it were kept until the end.
        let calls = format!(r#"[{{"result":{{"calls":[{many}{{}}],"calls":[]}}}}]"#);
        assert_eq!(reason(&calls), Ok(Some("more than 1000 frames are in a form that nobody knows".to_owned())));
        let deep = format!(r#"[{{"result":{{{}{}}}}}]"#, r#""calls":[{"#.repeat(100_000), "}]".repeat(100_000));
        assert_eq!(reason(&deep), Ok(Some("more than 1026 frames stand in each other".to_owned())));
        // More traces than transactions: one more is kept, and what is behind it is not read.
        assert_eq!(read(&format!("[{many}7]"), 3).map(|traces| traces.len()), Ok(4));
        assert_eq!(read("[{},{},{}]", 3).map(|traces| traces.len()), Ok(3));
        assert!(read("[{},{},7]", 3).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_the_calls_are_the_frames_are_theirs_in_execution_order(call in calls()) {
            let mut json = "[{\"result\":".to_owned();
            text(&call, &mut json);
            json += "}]";
            prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&json).is_ok(), "{json}");
            let mut frames = Vec::new();
            expected(&call, None, &mut frames);
            prop_assert_eq!(read(&json, 1), Ok(vec![Trace { tx: None, frames, error: None }]));
        }

        #[test]
        fn a_trace_that_was_cut_or_changed_is_read_or_refused(call in calls(), at in any::<prop::sample::Index>(), by in ".{0,3}") {
            let mut json = "[{\"result\":".to_owned();
            text(&call, &mut json);
            json += "}]";
            let at = at.index(json.len());
            // Not JSON any more: nothing is promised but an end without panic.
            let _ = read(json.get(..at).unwrap_or_default(), 1);
            let _ = read(&format!("{}{by}{}", json.get(..at).unwrap_or_default(), json.get(at + 1..).unwrap_or_default()), 1);
        }

        #[test]
        fn any_text_is_read_or_refused(json in "[\\[\\]{}\",:\\\\ a-z0-9]{0,80}") {
            let _ = read(&json, 1);
            let _ = read(&format!("[{{\"result\":{{{json}"), 1);
        }
    }
}
