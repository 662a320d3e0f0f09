//! What the stream must be like for our promises to hold, and the subjects that events are published to.
//!
//! A missing stream is made. An existing one is its owner's: it is checked and never changed.

use std::fmt::Write as _;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, ErrorCode};
use landfall_chain::with_causes;
use tokio::time::timeout;
use tracing::warn;

use crate::delivery::nats::NatsOptions;
use crate::event::FEED_TYPES;
use crate::store::sinks::State;

/// How long the stream must remember ids: as long as an event is retried.
pub const DUPLICATE_WINDOW: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// NATS stores a stream on at most so many servers.
pub const REPLICAS_MAX: usize = 5;
/// The code of a server that cannot reach the stream now.
const UNAVAILABLE: usize = 503;
const CHECK_TIME_MAX: Duration = Duration::from_secs(5);

/// Why the stream cannot be published to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) state: State,
    pub(super) what: String,
}

/// Makes the stream if there is none; otherwise checks that it is as it must be.
pub(super) async fn check(context: &Context, options: &NatsOptions) -> Result<(), Fault> {
    let away = |what: String| Fault { state: State::Away, what };
    let refused = |what: String| Fault { state: State::Refused, what };
    let looking = timeout(CHECK_TIME_MAX, context.get_stream(&options.stream)).await;
    let found = looking.map_err(|_| away(format!("no answer within {} s", CHECK_TIME_MAX.as_secs())))?;
    let config = match found {
        Ok(stream) => stream.cached_info().config.clone(),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                let making = timeout(CHECK_TIME_MAX, context.create_stream(wanted(options))).await;
                let made = making.map_err(|_| away("the stream could not be made in time".to_owned()))?;
                made.map_err(|error| refused(format!("the stream cannot be made: {}", with_causes(&error))))?;
                warn!("the NATS stream {} was not there and was made: it is empty", options.stream);
                return Ok(());
            }
            // For example a cluster without a leader: another of its servers may answer.
            GetStreamErrorKind::JetStream(error) if error.code() == UNAVAILABLE => return Err(away(error.to_string())),
            GetStreamErrorKind::JetStream(error) => return Err(refused(error.to_string())),
            GetStreamErrorKind::Request | GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
                return Err(away(format!(
                    "the server does not report on the stream (is JetStream on?): {}",
                    with_causes(&error)
                )));
            }
        },
    };
    fault(&config, options).map_or(Ok(()), |what| Err(refused(what)))
}

/// The stream that is made if there is none.
fn wanted(options: &NatsOptions) -> Config {
    Config {
        name: options.stream.clone(),
        subjects: vec![format!("{}.>", options.subject)],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: options.replicas,
        duplicate_window: DUPLICATE_WINDOW,
        description: Some("Events of Landfall".to_owned()),
        ..Config::default()
    }
}

/// What is wrong with a stream, and what to do; `None` if events can be published to it.
fn fault(config: &jetstream::stream::Config, options: &NatsOptions) -> Option<String> {
    let stream = &options.stream;
    let window = config.duplicate_window.as_secs();
    if config.duplicate_window < DUPLICATE_WINDOW {
        return Some(format!(
            "stream {stream} knows messages again for {window} s only, so that an event could be stored twice; it must be 7 days: \
             `nats stream edit {stream} --dupe-window 168h`"
        ));
    }
    let is_taken = |subjects: &String| config.subjects.iter().any(|filter| covers(filter, subjects));
    let wanted = FEED_TYPES.map(|kind| format!("{}.{kind}.*", options.subject));
    if let Some(missing) = wanted.iter().find(|subjects| !is_taken(subjects)) {
        let named = config.subjects.join(", ");
        return Some(format!(
            "stream {stream} takes {named} and not {missing}: add that subject to it, or name another stream"
        ));
    }
    if config.no_ack {
        return Some(format!("stream {stream} does not say what it stored; let it (no_ack = false)"));
    }
    if config.sealed || config.mirror.is_some() {
        return Some(format!("nothing can be published to stream {stream}, a mirror or sealed; name another one"));
    }
    if config.retention != RetentionPolicy::Limits {
        return Some(format!(
            "stream {stream} may drop what nobody waits for; its retention must be limits: name another one"
        ));
    }
    // The server drops the oldest event of a subject, which is an account's, unless it is set to refuse new ones.
    if config.max_messages_per_subject > 0 && !config.discard_new_per_subject {
        return Some(format!(
            "stream {stream} keeps {} messages of an account only and drops those before: \
             `nats stream edit {stream} --max-msgs-per-subject=-1`",
            config.max_messages_per_subject
        ));
    }
    if config.storage != StorageType::File {
        return Some(format!(
            "stream {stream} is kept in memory and would lose events; its storage must be file: name another one"
        ));
    }
    None
}

/// Whether `filter` matches each subject that `subjects` matches.
fn covers(filter: &str, subjects: &str) -> bool {
    let mut wanted = subjects.split('.');
    for token in filter.split('.') {
        let Some(want) = wanted.next() else { return false };
        match token {
            ">" => return true,
            "*" => {}
            token if token == want => {}
            _ => return false,
        }
    }
    wanted.next().is_none()
}

/// `<prefix>.<type>.<id>`, with the id of the account or of the identity. Characters with a meaning in subjects, and
/// `%`, become `%` and two digits, so that each part is one token.
pub(super) fn subject(prefix: &str, event_type: &str, id: &str) -> String {
    let mut subject = format!("{prefix}.{event_type}.");
    for character in id.chars() {
        if matches!(character, '.' | '*' | '>' | '%') {
            // Writing to a text does not fail.
            let _ = write!(subject, "%{:02X}", u32::from(character));
        } else {
            subject.push(character);
        }
    }
    subject
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::stream::DiscardPolicy;

    use super::*;

    fn options() -> NatsOptions {
        NatsOptions {
            urls: Vec::new(),
            credentials: None,
            ca: None,
            stream: "S".to_owned(),
            subject: "landfall".to_owned(),
            replicas: 1,
        }
    }

    #[test]
    fn an_account_is_one_token_of_the_subject_whatever_it_is_called() {
        let cases = [
            ("alice", "landfall.deposit_v2.alice"),
            ("9b2f6c1e-7c1c-4b3e-9d55-3f3f1c6a7a10", "landfall.deposit_v2.9b2f6c1e-7c1c-4b3e-9d55-3f3f1c6a7a10"),
            ("a.b", "landfall.deposit_v2.a%2Eb"),
            ("*", "landfall.deposit_v2.%2A"),
            (">", "landfall.deposit_v2.%3E"),
            ("a%2Eb", "landfall.deposit_v2.a%252Eb"),
        ];
        for (account, expected) in cases {
            assert_eq!(subject("landfall", "deposit_v2", account), expected);
        }
    }

    #[test]
    fn a_filter_covers_what_it_takes_all_of() {
        let cases = [
            ("landfall.>", true),
            (">", true),
            ("landfall.deposit_v2.*", true),
            ("landfall.deposit_v2.>", true),
            ("landfall.*.*", true),
            ("*.deposit_v2.>", true),
            ("landfall.deposit_v2", false),
            ("landfall.deposit_v2.alice", false),
            ("landfall.*", false),
            ("landfall.deposit_v2.*.*", false),
            ("landfall.transfer.*", false),
            ("other.>", false),
        ];
        for (filter, expected) in cases {
            assert_eq!(covers(filter, "landfall.deposit_v2.*"), expected, "{filter}");
        }
    }

    #[test]
    fn the_stream_that_is_made_is_one_that_can_be_published_to() {
        assert_eq!(fault(&wanted(&options()), &options()), None);
    }

    #[test]
    fn a_stream_that_could_lose_an_event_or_store_it_twice_is_refused_with_what_to_do() {
        let changed = |change: fn(&mut Config)| {
            let mut config = wanted(&options());
            change(&mut config);
            fault(&config, &options()).unwrap_or_default()
        };
        let day = changed(|config| config.duplicate_window = Duration::from_secs(86_400));
        assert!(day.contains("for 86400 s only") && day.contains("--dupe-window 168h"), "{day}");
        let other = changed(|config| config.subjects = vec!["a.>".to_owned(), "b".to_owned()]);
        assert!(other.contains("takes a.>, b and not landfall.deposit_v2.*"), "{other}");
        let one = changed(|config| config.subjects = vec!["landfall.deposit_v2.>".to_owned()]);
        assert!(one.contains("and not landfall.identity_status_update.*: add that subject"), "{one}");
        assert!(changed(|config| config.no_ack = true).contains("no_ack"));
        assert!(changed(|config| config.sealed = true).contains("sealed"));
        assert!(changed(|config| config.retention = RetentionPolicy::Interest).contains("retention must be limits"));
        assert!(changed(|config| config.retention = RetentionPolicy::WorkQueue).contains("retention must be limits"));
        let newest = changed(|config| config.max_messages_per_subject = 1);
        assert!(newest.contains("keeps 1 messages of an account only") && newest.contains("--max-msgs-per-subject=-1"));
        let refusing = changed(|config| {
            config.max_messages_per_subject = 1;
            config.discard = DiscardPolicy::New;
            config.discard_new_per_subject = true;
        });
        assert_eq!(refusing, "", "what it refuses waits, and is seen");
        assert_eq!(changed(|config| config.max_messages_per_subject = -1), "");
        assert!(changed(|config| config.storage = StorageType::Memory).contains("storage must be file"));
    }
}
