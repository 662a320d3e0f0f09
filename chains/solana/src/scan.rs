//! A plain block's text, read in one pass over its bytes: as nodes write it, without spaces and escapes, in the shape
//! `accounts`.
//!
//! It is the same reading as `wire`'s in a third of the time, for most of a block is names of fields and keys that are
//! only skipped. Promises: what it accepts is JSON, every byte of it, and reads as `wire` would read it. It does not
//! accept what is not plain, is reported twice, or is missing, and does not say why: then `wire` reads it from the
//! start, and decides what is wrong.

use std::mem;

use crate::wire::{WireAmount, WireBody, WireHeader, WireKey, WireMeta, WireTokenBalance, WireTx};

/// How deep a skipped value may be nested; an error of a transaction is 4 deep.
const DEPTH_MAX: usize = 16;
/// How many bytes are read before it is checked whether one of them was odd.
const PART: usize = 4_096;
/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// As many digits are never more than 64 bits hold.
const DIGITS_SAFE: usize = 19;

/// The block that `text` reports, its transactions shown one by one until one of them is not wanted; `None` where it
/// is not plain.
pub(crate) fn block<'a>(text: &'a str, mut take: impl FnMut(&WireTx<'a>) -> bool) -> Option<WireHeader<'a>> {
    if !is_plain(text.as_bytes()) {
        return None;
    }
    let mut scan = Scan { text, at: 0, read: Lists::default() };
    let (mut blockhash, mut previous_blockhash, mut parent_slot, mut block_time, mut txs) =
        (None, None, None, None, None);
    scan.object(|scan, name| match name {
        "blockhash" => once(&mut blockhash, scan.string()?),
        "previousBlockhash" => once(&mut previous_blockhash, scan.string()?),
        "parentSlot" => once(&mut parent_slot, scan.number()?),
        "blockTime" => once(&mut block_time, scan.unless_null(|scan| i64::try_from(scan.number()?).ok())?),
        "transactions" => once(&mut txs, scan.list(|scan| scan.tx_for(&mut take))?),
        _ => scan.pass_over(0),
    })?;
    txs?;
    let header = WireHeader {
        blockhash: blockhash?,
        previous_blockhash: previous_blockhash?,
        parent_slot: parent_slot?,
        block_time: block_time.flatten(),
    };
    (scan.at == text.len()).then_some(header)
}

/// Without a backslash and without what JSON does not allow in a string: then a quotation mark ends each.
fn is_plain(text: &[u8]) -> bool {
    let is_odd = |odd: bool, byte: &u8| odd | (*byte < b' ') | (*byte == b'\\');
    !text.chunks(PART).any(|part| part.iter().fold(false, is_odd))
}

/// Where the next one is. Strings are short: to begin a search that is made for long texts costs as much as all of
/// this one.
fn quotation_mark(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks();
    for (place, word) in words.iter().enumerate() {
        // A byte is zero where one stands; the lowest zero byte is marked, and maybe some above it.
        let marks = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'"'));
        let marked = marks.wrapping_sub(ONES) & !marks & (ONES << 7);
        if marked != 0 {
            return Some(place * word.len() + (marked.trailing_zeros() / u8::BITS) as usize);
        }
    }
    let at = rest.iter().position(|byte| *byte == b'"')?;
    Some(text.len() - rest.len() + at)
}

/// Sets a field that must not be reported twice.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    read: Lists<'a>,
}

/// The lists of the transaction before, for their room.
#[derive(Default)]
struct Lists<'a> {
    signatures: Vec<&'a str>,
    keys: Vec<WireKey<'a>>,
    balances: [Vec<u64>; 2],
    tokens: [Vec<WireTokenBalance<'a>>; 2],
}

impl<'a> Scan<'a> {
    fn tx_for(&mut self, take: &mut impl FnMut(&WireTx<'a>) -> bool) -> Option<()> {
        let tx = self.tx()?;
        let is_wanted = take(&tx);
        let WireTx { transaction: WireBody { signatures, account_keys, .. }, meta } = tx;
        let keys = account_keys.unwrap_or_default();
        if let Some(WireMeta { pre_balances, post_balances, pre_token_balances, post_token_balances, .. }) = meta {
            let balances = [pre_balances, post_balances];
            self.read = Lists { signatures, keys, balances, tokens: [pre_token_balances, post_token_balances] };
        }
        is_wanted.then_some(())
    }

    fn tx(&mut self) -> Option<WireTx<'a>> {
        let (mut body, mut meta) = (None, None);
        self.object(|scan, name| match name {
            "transaction" => once(&mut body, scan.body()?),
            "meta" => once(&mut meta, scan.meta()?),
            _ => scan.pass_over(0),
        })?;
        Some(WireTx { transaction: body?, meta: Some(meta?) })
    }

    fn body(&mut self) -> Option<WireBody<'a>> {
        let (mut signatures, mut keys) = (None, None);
        let Lists { signatures: for_signatures, keys: for_keys, .. } = &mut self.read;
        let (mut for_signatures, mut for_keys) = (mem::take(for_signatures), mem::take(for_keys));
        self.object(|scan, name| match name {
            "signatures" => once(&mut signatures, scan.all(&mut for_signatures, Scan::string)?),
            "accountKeys" => once(&mut keys, scan.all(&mut for_keys, Scan::key)?),
            // The shapes `json` and `jsonParsed`.
            "message" => None,
            _ => scan.pass_over(0),
        })?;
        Some(WireBody { signatures: signatures?, account_keys: Some(keys?), message: None })
    }

    fn key(&mut self) -> Option<WireKey<'a>> {
        let begun = self.at;
        if let Some(key) = self.usual_key() {
            return Some(key);
        }
        self.at = begun;
        let mut key = None;
        self.object(|scan, name| match name {
            "pubkey" => once(&mut key, scan.string()?),
            _ => scan.pass_over(0),
        })?;
        key.map(WireKey::Reported)
    }

    /// One as agave writes it, by the text between its values: half of a block is keys.
    fn usual_key(&mut self) -> Option<WireKey<'a>> {
        self.word(r#"{"pubkey":"#)?;
        let key = self.string()?;
        self.word(r#","signer":"#)?;
        self.truth()?;
        self.word(r#","source":"#)?;
        self.string()?;
        self.word(r#","writable":"#)?;
        self.truth()?;
        self.word("}")?;
        Some(WireKey::Reported(key))
    }

    fn meta(&mut self) -> Option<WireMeta<'a>> {
        let (mut failed, mut fee, mut pre_balances, mut post_balances) = (None, None, None, None);
        let (mut pre_tokens, mut post_tokens) = (None, None);
        let Lists { balances, tokens, .. } = &mut self.read;
        let ([mut for_pre, mut for_post], [mut for_pre_tokens, mut for_post_tokens]) =
            (mem::take(balances), mem::take(tokens));
        self.object(|scan, name| match name {
            "err" => once(&mut failed, scan.unless_null(|scan| scan.pass_over(0))?.is_some()),
            "fee" => once(&mut fee, scan.number()?),
            "preBalances" => once(&mut pre_balances, scan.all(&mut for_pre, Scan::number)?),
            "postBalances" => once(&mut post_balances, scan.all(&mut for_post, Scan::number)?),
            "preTokenBalances" => once(&mut pre_tokens, scan.all(&mut for_pre_tokens, Scan::token_balance)?),
            "postTokenBalances" => once(&mut post_tokens, scan.all(&mut for_post_tokens, Scan::token_balance)?),
            // Not reported in this shape.
            "loadedAddresses" => None,
            _ => scan.pass_over(0),
        })?;
        Some(WireMeta {
            failed: failed?,
            fee: fee?,
            pre_balances: pre_balances?,
            post_balances: post_balances?,
            pre_token_balances: pre_tokens?,
            post_token_balances: post_tokens?,
            loaded_addresses: None,
        })
    }

    fn token_balance(&mut self) -> Option<WireTokenBalance<'a>> {
        let (mut account_index, mut mint, mut owner, mut program_id, mut amount) = (None, None, None, None, None);
        self.object(|scan, name| match name {
            "accountIndex" => once(&mut account_index, usize::try_from(scan.number()?).ok()?),
            "mint" => once(&mut mint, scan.string()?),
            "owner" => once(&mut owner, scan.unless_null(Scan::string)?),
            "programId" => once(&mut program_id, scan.unless_null(Scan::string)?),
            "uiTokenAmount" => once(&mut amount, scan.amount()?),
            _ => scan.pass_over(0),
        })?;
        Some(WireTokenBalance {
            account_index: account_index?,
            mint: mint?,
            owner: owner.flatten(),
            program_id: program_id.flatten(),
            ui_token_amount: amount?,
        })
    }

    fn amount(&mut self) -> Option<WireAmount<'a>> {
        let (mut amount, mut decimals) = (None, None);
        self.object(|scan, name| match name {
            "amount" => once(&mut amount, scan.string()?),
            "decimals" => once(&mut decimals, u8::try_from(scan.number()?).ok()?),
            _ => scan.pass_over(0),
        })?;
        Some(WireAmount { amount: amount?, decimals: decimals? })
    }
}

/// JSON.
impl<'a> Scan<'a> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn pass(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text.as_bytes()[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// `field` takes the value of each name.
    fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.items(b'{', b'}', |scan| {
            let name = scan.string()?;
            scan.pass(b':')?;
            field(scan, name)
        })
    }

    fn list(&mut self, item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.items(b'[', b']', item)
    }

    fn items(&mut self, open: u8, close: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.pass(open)?;
        if self.pass(close).is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            let end = self.next()?;
            self.at += 1;
            if end == close {
                return Some(());
            }
            (end == b',').then_some(())?;
        }
    }

    /// The items of a list, in the room of one that is no longer needed.
    fn all<T>(&mut self, room: &mut Vec<T>, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = mem::take(room);
        all.clear();
        self.list(|scan| {
            all.push(item(scan)?);
            Some(())
        })?;
        Some(all)
    }

    fn unless_null<T>(&mut self, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.next()? == b'n' { self.word("null").map(|()| None) } else { value(self).map(Some) }
    }

    fn string(&mut self) -> Option<&'a str> {
        self.pass(b'"')?;
        let start = self.at;
        let length = quotation_mark(&self.text.as_bytes()[start..])?;
        self.at = start + length + 1;
        self.text.get(start..start + length)
    }

    /// A whole number that is not below 0. What may follow it in another number follows no value.
    fn number(&mut self) -> Option<u64> {
        let (start, mut number) = (self.at, 0_u64);
        let rest = &self.text.as_bytes()[start..];
        let digits = rest.iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit < 10);
        let count = digits.inspect(|digit| number = number.wrapping_mul(10).wrapping_add(u64::from(*digit))).count();
        self.at += count;
        match count {
            0 => None,
            1 => Some(number),
            _ if rest[0] == b'0' => None,
            // No number of so many is too large.
            2..=DIGITS_SAFE => Some(number),
            _ => self.text.get(start..self.at)?.parse().ok(),
        }
    }

    /// Any value.
    fn pass_over(&mut self, depth: usize) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'{' if depth < DEPTH_MAX => self.object(|scan, _| scan.pass_over(depth + 1)),
            b'[' if depth < DEPTH_MAX => self.list(|scan| scan.pass_over(depth + 1)),
            b't' | b'f' => self.truth(),
            b'n' => self.word("null"),
            b'-' | b'0'..=b'9' => self.any_number(),
            _ => None,
        }
    }

    fn truth(&mut self) -> Option<()> {
        self.word("true").or_else(|| self.word("false"))
    }

    fn any_number(&mut self) -> Option<()> {
        self.pass(b'-');
        if self.pass(b'0').is_none() {
            self.digits()?;
        }
        if self.pass(b'.').is_some() {
            self.digits()?;
        }
        if self.pass(b'e').or_else(|| self.pass(b'E')).is_some() {
            self.pass(b'+').or_else(|| self.pass(b'-'));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let count = self.text.as_bytes()[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use landfall_cluster::recorded;
    use proptest::prelude::*;
    use serde::de::DeserializeSeed;

    use super::*;
    use crate::wire::WireBlock;

    const BLOCK: &str = concat!(
        r#"{"blockhash":"b","blockHeight":1,"blockTime":1790000000,"parentSlot":7,"previousBlockhash":"p","transactions":["#,
        r#"{"meta":{"err":{"InstructionError":[2,{"Custom":6001}]},"fee":5000,"innerInstructions":null,"#,
        r#""preBalances":[10,0],"postBalances":[5,18446744073709551615],"preTokenBalances":[],"postTokenBalances":["#,
        r#"{"accountIndex":1,"mint":"m","owner":"o","programId":null,"#,
        r#""uiTokenAmount":{"amount":"12","decimals":6,"uiAmount":0.000012,"uiAmountString":"0.000012"}}],"#,
        r#""rewards":[],"status":{"Err":{"InstructionError":[2,{"Custom":6001}]}}},"transaction":{"accountKeys":["#,
        r#"{"pubkey":"k","signer":true,"source":"transaction","writable":false},{"pubkey":"l"}],"signatures":["s"]},"#,
        r#""version":0},{"transaction":{"signatures":[],"accountKeys":[]},"meta":{"err":null,"fee":0,"preBalances":[],"#,
        r#""postBalances":[],"preTokenBalances":[],"postTokenBalances":[]},"version":"legacy"}]}"#
    );

    fn scanned(text: &str) -> Option<String> {
        let mut txs = Vec::new();
        let header = block(text, |tx| {
            txs.push(format!("{tx:?}"));
            true
        })?;
        Some(format!("{header:?} {txs:?}"))
    }

    fn parsed(text: &str) -> Option<String> {
        let mut txs = Vec::new();
        let take = |tx: WireTx<'_>| {
            txs.push(format!("{tx:?}"));
            true
        };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let header = WireBlock(take).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(format!("{header:?} {txs:?}"))
    }

    /// That the scan reads what the parser reads, or leaves it to the parser.
    fn agree(text: &str) -> bool {
        let scanned = scanned(text);
        if scanned.is_some() {
            assert_eq!(scanned, parsed(text), "{text}");
        }
        scanned.is_some()
    }

    #[test]
    fn the_scan_takes_what_nodes_write() {
        assert!(agree(BLOCK));
        assert!(agree(&BLOCK.replace("1790000000", "null")));
        assert!(agree(&BLOCK.replace(r#""blockTime":1790000000,"#, "")));
        assert!(agree(&recorded::answer(447_120_001, recorded::mainnet_like(1))));
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        let odd = [
            (r#""signer":true"#, r#""signer": true"#),
            (r#""pubkey":"k""#, r#""pubkey":"\u006b""#),
            (r#""pubkey":"k""#, "\"pubkey\":\"k\u{1}\""),
            (r#""pubkey":"k""#, r#""pubkey":"k","pubkey":"k""#),
            (r#"{"pubkey":"l"}"#, r#""l""#),
            (r#""fee":5000"#, r#""fee":05000"#),
            (r#""fee":5000"#, r#""fee":5000.0"#),
            (r#""fee":5000"#, r#""fee":18446744073709551616"#),
            (r#""fee":5000"#, r#""fee":5000,"fee":5000"#),
            (r#""fee":5000"#, r#""fee":null"#),
            (r#""fee":5000,"#, ""),
            (r#""err":null,"#, ""),
            (r#""rewards":[]"#, r#""rewards":[01]"#),
            (r#""rewards":[]"#, r#""rewards":[1.]"#),
            (r#""rewards":[]"#, r#""rewards":[,]"#),
            (r#""rewards":[]"#, r#""loadedAddresses":{"writable":[],"readonly":[]}"#),
            (r#""transaction":{"signatures":[],"#, r#""transaction":{"message":{},"signatures":[],"#),
            (r#""parentSlot":7,"#, ""),
            (r#""transactions":"#, r#""transactions":[],"transactions":"#),
            (r#""version":"legacy"}]}"#, r#""version":"legacy"}]} "#),
            (r#""version":"legacy"}]}"#, r#""version":"legacy"}]"#),
        ];
        for (part, instead) in odd {
            assert!(BLOCK.contains(part), "{part}");
            assert_eq!(scanned(&BLOCK.replacen(part, instead, 1)), None, "{instead}");
        }
        let deep = format!("[{}{}]", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert_eq!(scanned(&BLOCK.replacen(r#""rewards":[]"#, &format!(r#""rewards":{deep}"#), 1)), None);
    }

    #[test]
    fn the_next_quotation_mark_is_found_wherever_it_stands() {
        // One bit away from it, and what is so where bytes are taken eight at a time.
        for other in [b'!', b'#', b'\xa2', 0] {
            for length in 0..40 {
                let mut text = vec![other; length];
                assert_eq!(quotation_mark(&text), None);
                for at in (0..length).rev() {
                    text[at] = b'"';
                    assert_eq!(quotation_mark(&text), Some(at), "{other} {length}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_any_length_read_as_the_parser_reads_them() {
        for number in ["0", "9", "9999999999999999999", "10000000000000000000", "18446744073709551615"] {
            assert!(agree(&BLOCK.replace(r#""fee":5000"#, &format!(r#""fee":{number}"#))), "{number}");
        }
        for number in ["", "-1", "00", "18446744073709551616", "99999999999999999999", "100000000000000000000"] {
            assert!(!agree(&BLOCK.replace(r#""fee":5000"#, &format!(r#""fee":{number}"#))), "{number}");
        }
    }

    #[test]
    fn a_transaction_that_is_not_wanted_ends_it() {
        let mut seen = 0;
        let read = block(BLOCK, |_| {
            seen += 1;
            false
        });
        assert!(read.is_none() && seen == 1);
    }

    const PIECES: [&str; 30] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "0",
        "1",
        "-",
        ".5",
        "e9",
        "null",
        "true",
        "fals",
        "\"a\"",
        "\"a\":1,",
        "\"fee\":1,",
        "\"err\":null,",
        "\"pubkey\":\"q\",",
        "\"meta\":null,",
        "\"owner\":null,",
        "[[]]",
        "{}",
        "\u{7f}",
        "\u{e9}",
        "\n",
        "18446744073709551616",
    ];

    proptest! {
        #[test]
        fn scan_and_parser_never_differ(
            flaws in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len(), 0..12_usize), 1..3)
        ) {
            let mut text = BLOCK.to_owned();
            for (at, pick, cut) in flaws {
                let at = (0..=at.index(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
                let end = (at + cut..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
                // One of 12 flaws only removes text.
                text.replace_range(at..end, if cut == 11 { "" } else { PIECES[pick] });
                agree(&text);
            }
        }
    }
}
