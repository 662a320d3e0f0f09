//! What nodes answer when they are handed a transaction: their words, as one of a closed list.
//!
//! Promises: what no row knows is [`BroadcastResponse::Unknown`], which decides nothing. The words are those of agave (its
//! `TransactionError` as text, rpc/src/rpc.rs, and what its clients print) and of surfpool; the messages behind the rows
//! are in `testdata/broadcast.json`. That a blockhash is not known may say that the node is behind: it is no death.

use landfall_chain::BroadcastResponse;
use landfall_chain::BroadcastResponse::{Expired, Known, Poor, Refused};

/// What is in a message, in lower case. The first row that fits counts.
pub(super) const WORDS: [(&str, BroadcastResponse); 20] = [
    ("already been processed", Known),
    ("already processed", Known),
    ("alreadyprocessed", Known),
    ("blockhash not found", Expired),
    ("blockhashnotfound", Expired),
    ("block height exceeded", Expired),
    ("insufficient funds for fee", Poor),
    ("insufficientfundsforfee", Poor),
    ("found no record of a prior credit", Poor),
    ("accountnotfound", Poor),
    ("may not be used to pay transaction fees", Poor),
    ("signature verification fail", Refused),
    ("did not pass signature verification", Refused),
    ("failed to sanitize", Refused),
    ("too large", Refused),
    ("failed to deserialize", Refused),
    ("invalid base64 encoding", Refused),
    ("transaction version is unsupported", Refused),
    ("invalid account reference", Refused),
    ("error processing instruction", Refused),
];

#[cfg(test)]
mod tests {
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
    fn the_words_of_nodes_are_understood() {
        for Fixture { client, message, response, source } in fixtures() {
            assert!(!source.is_empty() && !client.is_empty());
            assert_eq!(format!("{:?}", refusal(&WORDS, &message)), response, "{client}: {message:?}");
        }
    }

    #[test]
    fn each_row_is_some_nodes_words() {
        let messages: Vec<String> = fixtures().iter().map(|fixture| fixture.message.to_lowercase()).collect();
        for (index, (words, response)) in WORDS.iter().enumerate() {
            let earlier = |message: &str| WORDS[..index].iter().any(|(words, _)| message.contains(words));
            let is_used = messages.iter().any(|message| message.contains(words) && !earlier(message));
            assert!(is_used, "{words:?} ({response:?}) decides about no message of testdata/broadcast.json");
        }
    }
}
