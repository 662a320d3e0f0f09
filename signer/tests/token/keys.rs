//! Keys are made in the token once, and found again.

use std::collections::BTreeSet;

use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, ObjectClass};
use landfall_chain::{Family, KeyPath, SignRequest, Signer};

use crate::world::{CHAIN, SOLANA, World, carrier, intent, of_intent, one, sponsor, wallet};
use crate::{alone, beside, open};

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
