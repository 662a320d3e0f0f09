//! The journal on disk: what is mended, what is refused, and what a full disk does.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use landfall_chain::{
    Intent, JOURNAL_ENTRIES_MAX, JournalPage, Journaled, SIGN_REQUESTS_MAX, SignRequest, Signer, U256,
};
use landfall_signer::{Embedded, Policy, Sendable, verify};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::guarded;
use crate::world::{self, CHAIN, NOW, SOLANA, TOKEN, World, carrier, intent, of_intent, one, sponsor, unavailable};

/// Names the keystore with which a process of the tests fills its disk.
const FULL: &str = "LANDFALL_TEST_FULL_DISK";

/// An intent, its carrier, and another intent: entries 1 to 3.
async fn with_three_entries() -> World {
    let world = World::new();
    let signer = world.open();
    let carrier = carrier(&signer, intent(1)).await;
    one(&signer, SignRequest::Carrier { path: sponsor(), carrier }).await.unwrap();
    one(&signer, of_intent(intent(2))).await.unwrap();
    assert_eq!(signer.newest_seq(), 3);
    world
}

fn broken(world: &World) -> String {
    let error = world.try_open().unwrap_err().to_string();
    assert_eq!(verify(&world.journal()).unwrap_err().to_string(), error, "both judge alike");
    error
}

#[tokio::test]
async fn a_journal_says_what_was_signed_in_one_form() {
    let world = with_three_entries().await;
    let text = fs::read_to_string(world.journal()).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["content"]["id"], world.id.as_str());
    assert_eq!(world.id.len(), 32);
    let of_intent = &lines[1];
    assert_eq!(of_intent["kind"], "intent");
    assert_eq!(of_intent["transfer"], "01010101010101010101010101010101");
    assert_eq!(of_intent["chain"], CHAIN);
    assert_eq!(of_intent["deadline"], NOW + 300);
    assert_eq!(of_intent["content"]["amount"], "5000000");
    assert_eq!(of_intent["content"]["destination"], "0x0202020202020202020202020202020202020202");
    assert_eq!(lines[2]["kind"], "carrier");
    assert_eq!(lines[2]["content"]["intent"], 1);
    assert_eq!(lines[2]["content"]["nonce"], 7);
    for (line, before) in lines[1..].iter().zip(&lines) {
        assert_eq!(line["prev"], before["hash"]);
    }
    let verified = verify(&world.journal()).unwrap();
    assert_eq!((verified.signer.as_str(), verified.newest_seq, verified.torn_bytes), (world.id.as_str(), 3, 0));
    assert_eq!(verified.bytes, text.len() as u64);
    assert_eq!(lines[3]["hash"], verified.newest_hash.as_str());
}

#[tokio::test]
async fn what_was_signed_for_a_chain_is_read_behind_any_entry() {
    let world = with_three_entries().await;
    let signer = world.open();
    let of_intent = |id| Journaled::Intent { transfer_id: [id; 16], deadline: NOW + 300 };
    let paths = [sponsor()];
    let sponsor = signer.addresses(&paths).await.unwrap()[0];
    let again = SignRequest::Carrier { path: paths[0], carrier: carrier(&signer, intent(1)).await };
    let tx = one(&signer, again).await.unwrap().tx.unwrap();
    let of_carrier = Journaled::Carrier { transfer_id: Some([1; 16]), sponsor, nonce: Some(7), tx };
    let all = [(1, of_intent(1)), (2, of_carrier), (3, of_intent(2))];
    for behind in 0..=3 {
        let entries = all[behind..].to_vec();
        let page = signer.journal(CHAIN, behind as u64).await.unwrap();
        assert_eq!(page, JournalPage { newest: 3, through: 3, entries });
    }
    let nothing = |through| JournalPage { newest: 3, through, entries: Vec::new() };
    assert_eq!(signer.journal(CHAIN, 7).await.unwrap(), nothing(7), "it ends before");
    assert_eq!(signer.journal("eip155:1", 0).await.unwrap(), nothing(3));
}

#[tokio::test]
async fn a_long_journal_is_read_in_parts_also_by_who_opens_it_anew() {
    let world = World::new();
    let mut signer = world.open();
    let count = 2 * JOURNAL_ENTRIES_MAX + 100;
    let request = |n: u64| SignRequest::Intent {
        path: guarded::wallet(),
        intent: Intent { transfer_id: u128::from(n).to_be_bytes(), ..guarded::sol() },
        heals: 0,
    };
    let requests: Vec<SignRequest> = (1..=count).map(request).collect();
    for part in requests.chunks(SIGN_REQUESTS_MAX) {
        signer.sign(part).await.unwrap().into_iter().for_each(|signed| drop(signed.unwrap()));
    }
    for _ in 0..2 {
        for behind in [0, 1, 999, 1_000, 1_001, 1_999, 2_000, 2_050, count] {
            let JournalPage { newest, through, entries } = signer.journal(SOLANA, behind).await.unwrap();
            assert_eq!((newest, through), (count, count.min(behind + JOURNAL_ENTRIES_MAX)));
            let expected: Vec<u64> = (behind + 1..=through).collect();
            assert_eq!(entries.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), expected);
            let last = Journaled::Intent { transfer_id: u128::from(through).to_be_bytes(), deadline: NOW + 300 };
            assert_eq!(entries.last(), (through > behind).then_some(&(through, last)));
        }
        drop(signer);
        signer = world.open();
    }
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_what_stands_before_it_counts() {
    let world = with_three_entries().await;
    let whole = fs::read(world.journal()).unwrap();
    let before_last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in [before_last + 1, whole.len() - 1] {
        fs::write(world.journal(), &whole[..end]).unwrap();
        assert_eq!(verify(&world.journal()).unwrap().torn_bytes, (end - before_last) as u64);
        assert_eq!(fs::read(world.journal()).unwrap().len(), end, "verifying changes nothing");
        let signer = world.open();
        assert_eq!(fs::read(world.journal()).unwrap(), whole[..before_last]);
        assert_eq!(signer.newest_seq(), 2);
        let again = one(&signer, of_intent(intent(2))).await.unwrap();
        assert_eq!(again.seq, 3);
        assert_eq!(fs::read(world.journal()).unwrap(), whole, "the same entry as before");
    }
}

#[tokio::test]
async fn a_line_that_was_changed_or_taken_out_is_refused_by_its_number() {
    let world = with_three_entries().await;
    let whole = fs::read_to_string(world.journal()).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let path = world.journal().display().to_string();
    let changed = whole.replacen("\"5000000\"", "\"5000001\"", 1);
    let spaced = whole.replacen("\"seq\":1,", "\"seq\": 1,", 1);
    let cases = [
        (changed, 2, "does not follow from the one before"),
        (lines[0].to_owned() + lines[2] + lines[3], 2, "does not follow from the one before"),
        (lines[0].to_owned() + lines[1] + lines[3], 3, "does not follow from the one before"),
        (lines[0].to_owned() + lines[1] + lines[1], 3, "does not follow from the one before"),
        (spaced, 2, "cannot be read"),
        (whole[..80].to_owned() + "\n" + &whole[80..], 1, "cannot be read"),
        (String::new(), 1, "cannot be read"),
        (lines[0].trim_end().to_owned(), 1, "cannot be read"),
        (lines[1..].concat(), 1, "does not say whose journal it is"),
    ];
    for (text, line, what) in cases {
        fs::write(world.journal(), text).unwrap();
        let expected = format!("journal {path} line {line} {what}: nothing is signed until it is restored from a copy");
        assert_eq!(broken(&world), expected);
    }
    fs::write(world.journal(), &whole).unwrap();
    world.open();
}

/// Whoever knows the form can hash entries again; what they say must still hold together.
#[tokio::test]
async fn an_entry_that_contradicts_an_earlier_one_is_refused() {
    let (one_world, other) = (World::new(), World::new());
    fs::copy(one_world.journal(), other.journal()).unwrap();
    one(&one_world.open(), of_intent(intent(1))).await.unwrap();
    let payment = Intent { amount: U256::from(6), ..intent(1) };
    fs::copy(one_world.journal(), other.journal()).unwrap();
    {
        // A signer that does not know entry 1 follows with another content for the same transfer.
        let entries = fs::read_to_string(other.journal()).unwrap();
        let first = entries.lines().next().unwrap().to_owned() + "\n";
        fs::write(other.journal(), first).unwrap();
        one(&other.open(), of_intent(payment)).await.unwrap();
        let second = fs::read_to_string(other.journal()).unwrap().lines().nth(1).unwrap().to_owned();
        fs::write(other.journal(), entries.clone() + &behind(&entries, &second) + "\n").unwrap();
    }
    let error = broken(&other);
    assert!(error.contains("line 3 contradicts an earlier one"), "{error}");
}

/// `line` as entry 2 behind the last of `entries`.
fn behind(entries: &str, line: &str) -> String {
    let last: serde_json::Value = serde_json::from_str(entries.lines().last().unwrap()).unwrap();
    let read: serde_json::Value = serde_json::from_str(line).unwrap();
    let text = |name: &str| read[name].as_str().unwrap().as_bytes().to_vec();
    let number = |name: &str| read[name].as_u64().unwrap().to_be_bytes().to_vec();
    let content = line.split("\"content\":").nth(1).unwrap().split(",\"prev\"").next().unwrap();
    let prev = last["hash"].as_str().unwrap();
    let fields = [
        b"journal/v1".to_vec(),
        2_u64.to_be_bytes().to_vec(),
        number("at"),
        text("kind"),
        text("transfer"),
        text("chain"),
        text("path"),
        number("deadline"),
        content.as_bytes().to_vec(),
        prev.as_bytes().to_vec(),
    ];
    let hash = landfall_chain::hash_of(fields.iter().map(Vec::as_slice));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    line.replacen("\"seq\":1", "\"seq\":2", 1).replacen(read["prev"].as_str().unwrap(), prev, 1).replacen(
        read["hash"].as_str().unwrap(),
        &hash,
        1,
    )
}

#[tokio::test]
async fn what_was_written_behind_an_open_journal_is_not_overwritten() {
    let world = with_three_entries().await;
    let signer = world.open();
    OpenOptions::new().append(true).open(world.journal()).unwrap().write_all(b"x").unwrap();
    one(&signer, of_intent(intent(3))).await.unwrap();
    drop(signer);
    assert!(broken(&world).contains("line 5 cannot be read"));
}

/// The disk is full in another process, so that the limit is not that of all tests.
#[test]
fn a_full_disk_signs_nothing_and_signs_again_once_there_is_room() {
    let world = World::new();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "journal::a_process_whose_disk_is_full"])
        .env(FULL, world.dir())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(verify(&world.journal()).unwrap().newest_seq, 4);
}

/// Not a test of its own: the process of the test above.
#[tokio::test]
async fn a_process_whose_disk_is_full() {
    #[expect(clippy::disallowed_methods, reason = "how the test above talks to its other process")]
    let Some(dir) = env::var_os(FULL) else { return };
    let dir = Path::new(&dir);
    let assets = vec![(landfall_chain::AssetId::Token(TOKEN), world::route())];
    let policy =
        Policy::new([Sendable { chain_ref: CHAIN.to_owned(), assets, caps: Vec::new(), cost_max: 0, refill_max: 0 }]);
    let signer = Embedded::open(dir, &world::passphrase("secret"), policy, Arc::new(|| NOW)).unwrap();
    one(&signer, of_intent(intent(1))).await.unwrap();
    let before = fs::read(dir.join("journal")).unwrap();

    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    // Room for a part of the line: what is torn must be cut off again.
    setrlimit(Resource::RLIMIT_FSIZE, before.len() as u64 + 100, hard).unwrap();
    for _ in 0..2 {
        let error = unavailable(&signer, of_intent(intent(2))).await.0;
        assert!(error.contains("cannot use the journal"), "{error}");
        assert_eq!(fs::read(dir.join("journal")).unwrap(), before);
    }
    let known = one(&signer, of_intent(intent(1))).await.unwrap();
    assert_eq!(known.seq, 1, "what is on disk may be signed again");
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();

    // Nothing is left of what was not signed: the transfer may have another content, and numbers have no gap.
    let other = Intent { amount: U256::from(6), ..intent(2) };
    assert_eq!(one(&signer, of_intent(other)).await.unwrap().seq, 2);
    let requests = [3, 4].map(|transfer| of_intent(intent(transfer)));
    let signed = signer.sign(&requests).await.unwrap();
    assert_eq!(signed.into_iter().map(|signed| signed.unwrap().seq).collect::<Vec<_>>(), [3, 4]);
}
