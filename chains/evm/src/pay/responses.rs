//! What nodes answer when they are handed a transaction: their words, as one of a closed list.
//!
//! Promises: what no row knows is [`BroadcastResponse::Unknown`], which decides nothing. The words are those of geth and
//! what descends from it (op-geth, bor), reth, Erigon, Nethermind, Besu and anvil; the messages behind the rows are in
//! `testdata/broadcast.json`, with their sources. Codes do not count: nodes share few of them.

use landfall_chain::BroadcastResponse;
use landfall_chain::BroadcastResponse::{Delegated, Gapped, Known, NonceUsed, Poor, Refused, Reserved, Underpriced};

/// What is in a message, in lower case. The first row that fits counts: "gapped-nonce tx from delegated accounts" is
/// about the delegation.
pub(super) const WORDS: [(&str, BroadcastResponse); 54] = [
    ("already known", Known),
    ("alreadyknown", Known),
    ("known transaction", Known),
    ("already imported", Known),
    ("existing txn with same hash", Known),
    ("existing tx with same hash", Known),
    ("delegated accounts", Delegated),
    ("cannot be delegated", Delegated),
    ("delegation nonce gap", Delegated),
    ("notcurrentnoncefordelegation", Delegated),
    ("authority already reserved", Reserved),
    ("delegation authority has pending transaction", Reserved),
    ("delegatorhaspendingtx", Reserved),
    ("nonce too low", NonceUsed),
    ("oldnonce", NonceUsed),
    ("nonce too high", Gapped),
    ("nonce too far in future", Gapped),
    ("noncetoofarinfuture", Gapped),
    ("noncegap", Gapped),
    ("too distant from current sender nonce", Gapped),
    ("lower nonce exists", Gapped),
    ("underpriced", Underpriced),
    ("could not replace existing tx", Underpriced),
    ("gas price to replace existing transaction", Underpriced),
    ("replacementnotallowed", Underpriced),
    ("fee too low", Underpriced),
    ("feetoolow", Underpriced),
    ("less than block base fee", Underpriced),
    ("below current base fee", Underpriced),
    ("below configured minimum gas price", Underpriced),
    ("gas price below minimum", Underpriced),
    ("below minimum required priority fee", Underpriced),
    ("below chain minimum", Underpriced),
    ("insufficient funds", Poor),
    ("insufficientfunds", Poor),
    ("upfront cost exceeds account balance", Poor),
    ("overdraws from account", Poor),
    ("intrinsic gas", Refused),
    ("intrinsicgas", Refused),
    ("floor data gas", Refused),
    ("exceeds block gas limit", Refused),
    ("exceeds block's gas limit", Refused),
    ("gas limit too high", Refused),
    ("gas limit is too high", Refused),
    ("exceeds max transaction gas limit", Refused),
    ("priority fee per gas higher than max fee per gas", Refused),
    ("priority fee per gas exceeds max fee per gas", Refused),
    ("invalid sender", Refused),
    ("signature", Refused),
    ("chain id", Refused),
    ("chainid", Refused),
    ("transaction type", Refused),
    ("exceeds the configured cap", Refused),
    ("sender not an eoa", Refused),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use landfall_chain::BroadcastResponse::Unknown;
    use landfall_rpc::refusal;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fixture {
        client: String,
        message: String,
        response: String,
        source: String,
    }

    fn fixtures() -> Vec<Fixture> {
        serde_json::from_str(include_str!("../../testdata/broadcast.json")).unwrap()
    }

    #[test]
    fn the_words_of_each_client_are_understood() {
        let mut wrong = Vec::new();
        for Fixture { client, message, response, source } in fixtures() {
            assert!(!source.is_empty());
            let reported = format!("{:?}", refusal(&WORDS, &message));
            if reported != response {
                wrong.push(format!("{client}: {message:?} is {reported}, not {response}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let clients: BTreeSet<String> = fixtures().into_iter().map(|fixture| fixture.client).collect();
        let expected = ["anvil", "besu", "bor", "erigon", "geth", "nethermind", "op-geth", "reth"];
        assert_eq!(clients.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_row_is_some_clients_words() {
        let messages: Vec<String> = fixtures().iter().map(|fixture| fixture.message.to_lowercase()).collect();
        for (index, (words, response)) in WORDS.iter().enumerate() {
            let earlier = |message: &str| WORDS[..index].iter().any(|(words, _)| message.contains(words));
            let is_used = messages.iter().any(|message| message.contains(words) && !earlier(message));
            assert!(is_used, "{words:?} ({response:?}) decides about no message of testdata/broadcast.json");
        }
    }

    #[test]
    fn the_best_of_two_answers_counts() {
        use BroadcastResponse::Pooled;
        let cases: [(&[BroadcastResponse], BroadcastResponse); 7] = [
            (&[], Unknown),
            (&[Unknown, Underpriced], Underpriced),
            (&[NonceUsed, Pooled], Pooled),
            (&[Known, Pooled], Pooled),
            (&[Refused, Known], Known),
            (&[Gapped, NonceUsed], NonceUsed),
            (&[Unknown, Unknown], Unknown),
        ];
        for (responses, expected) in cases {
            assert_eq!(BroadcastResponse::best(responses), expected, "{responses:?}");
        }
    }
}
