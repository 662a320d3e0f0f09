//! Keys are made in the token once, and found again.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::process::{Child, ChildStdout, Command, Stdio};

use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, ObjectClass};
use landfall_chain::{Family, KeyPath, SignRequest, Signer};
use landfall_signer::Token;

use crate::world::{CHAIN, SOLANA, World, carrier, intent, of_intent, one, sponsor, wallet};
use crate::{alone, beside, open, place, variable, with};

const ASKED: &str = "LANDFALL_TEST_TOKEN_ASKED";

fn paths() -> [KeyPath; 3] {
    [sponsor(), KeyPath::of_treasury(Family::Evm, CHAIN), KeyPath::of_sponsor(Family::Solana, SOLANA, 0)]
}

fn label(path: &KeyPath) -> Attribute {
    Attribute::Label(format!("landfall sponsors {path}").into_bytes())
}

#[test]
fn a_key_is_made_in_the_token_when_its_address_is_first_asked_for_and_never_leaves_it() {
    alone("keys::a_key_is_made_in_the_token_when_its_address_is_first_asked_for_and_never_leaves_it", async {
        let world = World::new();
        let derived = world.open().addresses(&[paths().as_slice(), &[wallet()]].concat()).await.unwrap();
        let signer = open(&world);
        let (pkcs11, session) = beside();
        let private = Attribute::Class(ObjectClass::PRIVATE_KEY);
        assert!(session.find_objects(std::slice::from_ref(&private)).unwrap().is_empty());
        // Nothing is made for who asks for a signature.
        let strange = SignRequest::Carrier { path: sponsor(), carrier: carrier(&world_of_seeds(), intent(1)).await };
        let why = one(&signer, strange).await.unwrap_err().0;
        assert_eq!(why, format!("the token has no key \"landfall sponsors {}\"", sponsor()));

        let held = signer.addresses(&paths()).await.unwrap();
        assert_eq!(signer.addresses(&paths()).await.unwrap(), held);
        assert_eq!(BTreeSet::from_iter(held.iter().chain(&derived)).len(), 7, "none of them is derived");
        assert_eq!(signer.addresses(&[wallet()]).await.unwrap(), derived[3..], "wallets are");
        for path in paths() {
            let [key] = session.find_objects(&[private.clone(), label(&path)]).unwrap()[..] else { panic!("{path}") };
            let of_key = [AttributeType::Sensitive, AttributeType::NeverExtractable, AttributeType::AlwaysSensitive];
            let expected =
                [Attribute::Sensitive(true), Attribute::NeverExtractable(true), Attribute::AlwaysSensitive(true)];
            assert_eq!(session.get_attributes(key, &of_key).unwrap(), expected);
            assert!(session.get_attributes(key, &[AttributeType::Value]).unwrap().is_empty(), "its value is not given");
        }
        let info = pkcs11.get_library_info().unwrap();
        println!("{} {}", info.library_description(), info.library_version());
        drop((session, pkcs11, signer));
        assert_eq!(open(&world).addresses(&paths()).await.unwrap(), held, "found again");
    });
}

/// The keystore's own sponsor, in another folder.
fn world_of_seeds() -> landfall_signer::Embedded {
    World::new().open()
}

#[test]
fn two_keys_of_one_label_are_refused_and_wallets_go_on() {
    alone("keys::two_keys_of_one_label_are_refused_and_wallets_go_on", async {
        let world = World::new();
        let signer = open(&world);
        let carried = SignRequest::Carrier { path: sponsor(), carrier: carrier(&signer, intent(1)).await };
        let (_pkcs11, session) = beside();
        let curve = Attribute::EcParams(vec![0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a]);
        let template = [Attribute::Token(true), label(&sponsor())];
        let public = [&template[..], &[curve]].concat();
        let (second, _) = session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &template).unwrap();
        let refusal = format!(
            "the token has 2 private keys \"landfall sponsors {}\": a person must delete all but the one whose address is in use",
            sponsor()
        );
        assert_eq!(signer.addresses(&[sponsor()]).await.unwrap_err().0, refusal);
        let answers = signer.sign(&[carried, of_intent(intent(2))]).await.unwrap();
        assert_eq!(answers[0].as_ref().unwrap_err().0, refusal);
        assert_eq!(answers[1].as_ref().unwrap().seq, 2);
        session.destroy_object(second).unwrap();
    });
}

#[test]
fn a_private_key_without_its_public_one_is_refused_and_what_is_left_of_a_pair_belongs_to_no_other() {
    alone(
        "keys::a_private_key_without_its_public_one_is_refused_and_what_is_left_of_a_pair_belongs_to_no_other",
        async {
            let world = World::new();
            let signer = open(&world);
            let [first, treasury, _] = signer.addresses(&paths()).await.unwrap()[..] else { panic!("three") };
            let (_pkcs11, session) = beside();
            let of = |class, path: &KeyPath| session.find_objects(&[Attribute::Class(class), label(path)]).unwrap()[0];
            session.destroy_object(of(ObjectClass::PRIVATE_KEY, &sponsor())).unwrap();
            let second = signer.addresses(&[sponsor()]).await.unwrap()[0];
            assert_ne!(second, first, "made anew beside the public key that was left");
            assert_eq!(signer.addresses(&[sponsor()]).await.unwrap(), [second]);
            session.destroy_object(of(ObjectClass::PUBLIC_KEY, &paths()[1])).unwrap();
            let why = signer.addresses(&[paths()[1]]).await.unwrap_err().0;
            let expected = format!(
                "the token has no public key that fits to the private key \"landfall sponsors {}\"",
                paths()[1]
            );
            assert_eq!(why, expected, "{treasury}");
        },
    );
}

#[test]
fn processes_that_ask_for_one_key_at_the_same_moment_never_have_two_addresses() {
    alone("keys::processes_that_ask_for_one_key_at_the_same_moment_never_have_two_addresses", async {
        let (mut made, mut refusals) = (0, 0);
        for number in 0..5 {
            let mut processes: Vec<Child> = (0..4).map(|_| asking(number)).collect();
            let mut lines: Vec<_> =
                processes.iter_mut().map(|it| BufReader::new(it.stdout.take().unwrap()).lines()).collect();
            for lines in &mut lines {
                said(lines, "open: ");
            }
            for process in &mut processes {
                process.stdin.take().unwrap().write_all(b"go\n").unwrap();
            }
            let asked: Vec<String> = lines.iter_mut().map(|lines| said(lines, "asked: ")).collect();
            let addresses: BTreeSet<&String> = asked.iter().filter(|answer| answer.starts_with("0x")).collect();
            assert!(addresses.len() <= 1, "{asked:?}");
            made += addresses.len();
            refusals += asked.iter().filter(|answer| answer.contains("private keys")).count();
            processes.iter_mut().for_each(|process| assert!(process.wait().unwrap().success()));
        }
        println!("of 5 keys that 4 processes asked for at once {made} have an address; {refusals} of 20 were refused");
    });
}

fn asking(number: u32) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "keys::a_process_that_asks_for_a_key", "--nocapture"]).env(ASKED, number.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn said(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> String {
    lines.map(Result::unwrap).find_map(|line| Some(line.split_once(what)?.1.to_owned())).unwrap()
}

/// Not a test of its own: the other processes of the test above.
#[tokio::test]
async fn a_process_that_asks_for_a_key() {
    let Some(number) = variable(ASKED) else { return };
    let path = KeyPath::of_sponsor(Family::Evm, CHAIN, number.parse().unwrap());
    let world = World::new();
    // While another process writes what SoftHSM keeps of the token, there seems to be none.
    let signer = Token::open(place()).map(|token| with(&world, token));
    println!("open: {}", signer.is_ok());
    stdin().lines().next().unwrap().unwrap();
    let asked = match signer {
        Ok(signer) => signer.addresses(&[path]).await.map_err(|error| error.0),
        Err(error) => Err(error.to_string()),
    };
    println!("asked: {}", asked.map_or_else(|error| error, |all| all[0].to_string()));
}
