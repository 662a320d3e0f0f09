//! What a token signs is a signature of its key, in the form that chains take, and the same for equal requests.

use std::sync::atomic::Ordering;

use ed25519_dalek::{Signature, VerifyingKey};
use landfall_chain::{
    Address, AssetId, BlockHash, Carried, Carrier, Family, GuardTerms, Guarded, Intent, KeyPath, Reclaim, Refill,
    Route, SignRequest, Signed, Signer, TxId, U256,
};
use landfall_evm::pay::{carrier as unsigned, signer_of};
use landfall_signer::{Embedded, verify};

use crate::world::{CHAIN, NOW, SOLANA, World, carrier, intent, of_intent, one, sponsor, unavailable};
use crate::{alone, beside, initialize, open};

fn of(carrier: &Carrier) -> SignRequest {
    SignRequest::Carrier { path: sponsor(), carrier: carrier.clone() }
}

/// The items of an RLP list that is the end of `raw`.
fn items(raw: &[u8]) -> Vec<Vec<u8>> {
    fn head(bytes: &[u8]) -> (usize, usize) {
        let long = |tag: u8| {
            let count = usize::from(bytes[0] - tag);
            (1 + count, bytes[1..=count].iter().fold(0, |len, byte| len << 8 | usize::from(*byte)))
        };
        match bytes[0] {
            0..0x80 => (0, 1),
            0x80..=0xb7 => (1, usize::from(bytes[0] - 0x80)),
            0xb8..0xc0 => long(0xb7),
            0xc0..=0xf7 => (1, usize::from(bytes[0] - 0xc0)),
            0xf8.. => long(0xf7),
        }
    }
    let (skip, len) = head(raw);
    let mut rest = &raw[skip..];
    assert_eq!(rest.len(), len);
    let mut items = Vec::new();
    while !rest.is_empty() {
        let (skip, len) = head(rest);
        items.push(rest[skip..skip + len].to_vec());
        rest = &rest[skip + len..];
    }
    items
}

/// Who signed a carrier of type 2, by its bytes alone.
fn sender(carrier: &Carrier, signed: &Signed) -> Option<Address> {
    assert_eq!(signed.bytes[0], 2);
    let [.., v, r, s] = &items(&signed.bytes[1..])[..] else { panic!("a list") };
    let mut signature = [0; 65];
    signature[32 - r.len()..32].copy_from_slice(r);
    signature[64 - s.len()..64].copy_from_slice(s);
    signature[64] = 27 + v.first().copied().unwrap_or(0);
    let (raw, tx) = unsigned(carrier).unwrap().signed(&signature);
    assert_eq!((raw, Some(tx)), (signed.bytes.clone(), signed.tx));
    signer_of(&unsigned(carrier).unwrap().digest(), &signature)
}

#[test]
fn a_carrier_is_signed_by_the_tokens_key_with_a_low_s_each_time() {
    alone("signing::a_carrier_is_signed_by_the_tokens_key_with_a_low_s_each_time", async {
        let world = World::new();
        let signer = open(&world);
        let first = carrier(&signer, intent(1)).await;
        // A token gives a high s for every second: nodes refuse these.
        for nonce in 0..40 {
            let carrier = Carrier { nonce, ..first.clone() };
            let signed = one(&signer, of(&carrier)).await.unwrap();
            assert_eq!(sender(&carrier, &signed), Some(first.sponsor), "nonce {nonce}");
        }
        assert_eq!(verify(&world.journal()).unwrap().newest_seq, 41);
    });
}

#[test]
fn an_equal_request_gives_the_bytes_that_the_journal_has_although_the_token_would_sign_others() {
    alone(
        "signing::an_equal_request_gives_the_bytes_that_the_journal_has_although_the_token_would_sign_others",
        async {
            let world = World::new();
            let signer = open(&world);
            let carrier = carrier(&signer, intent(1)).await;
            let twice = signer.sign(&[of(&carrier), of(&carrier)]).await.unwrap();
            let signed = twice[0].clone().unwrap();
            assert_eq!(twice[1].as_ref(), Ok(&signed), "within one call");
            assert_eq!(one(&signer, of(&carrier)).await.as_ref(), Ok(&signed));
            // Many entries later, behind the window, and after a restart.
            for transfer in 2..40 {
                one(&signer, of_intent(intent(transfer))).await.unwrap();
            }
            drop(signer);
            world.now.store(NOW + 10_000, Ordering::Relaxed);
            let signer = open(&world);
            assert_eq!(one(&signer, of(&carrier)).await.as_ref(), Ok(&signed));
            assert_eq!(signer.newest_seq(), 40);
            // Another one is signed anew; and of the very same content in another journal the token signs other bytes.
            let bumped = Carrier { max_fee: carrier.max_fee * 2, ..carrier.clone() };
            assert_eq!(one(&signer, of(&bumped)).await.unwrap().seq, 41);
            let other = World::new();
            drop(signer);
            let signer = open(&other);
            one(&signer, of_intent(intent(1))).await.unwrap();
            let again = one(&signer, of(&carrier)).await.unwrap();
            assert_eq!(sender(&carrier, &again), Some(carrier.sponsor));
            assert_ne!(again.bytes, signed.bytes);
        },
    );
}

#[test]
fn a_treasury_in_the_token_refills_a_sponsor_in_the_token() {
    alone("signing::a_treasury_in_the_token_refills_a_sponsor_in_the_token", async {
        let world = World::new();
        let signer = open(&world);
        let path = KeyPath::of_treasury(Family::Evm, CHAIN);
        let [treasury, recipient] = signer.addresses(&[path, sponsor()]).await.unwrap()[..] else { panic!("two") };
        let refill = Refill { chain_ref: CHAIN.to_owned(), number: 0, recipient, amount: U256::from(5_000) };
        let carried = Carried::Refill(refill);
        let carrier = Carrier { sponsor: treasury, carried, nonce: 4, gas_limit: 25_200, max_fee: 3, tip: 1 };
        let request = SignRequest::Carrier { path, carrier: carrier.clone() };
        let signed = one(&signer, request.clone()).await.unwrap();
        assert_eq!(sender(&carrier, &signed), Some(treasury));
        assert_eq!(one(&signer, request).await, Ok(signed));
    });
}

#[test]
fn while_the_token_does_not_answer_nothing_is_signed_or_journaled_and_then_all_of_it() {
    alone("signing::while_the_token_does_not_answer_nothing_is_signed_or_journaled_and_then_all_of_it", async {
        let world = World::new();
        let signer = open(&world);
        let carrier = carrier(&signer, intent(1)).await;
        let batch = [of_intent(intent(2)), of(&carrier)];
        // Somebody logs the user out: the signer logs in again by itself.
        let (pkcs11, session) = beside();
        session.logout().unwrap();
        assert_eq!(signer.addresses(&[sponsor()]).await.unwrap(), [carrier.sponsor]);
        drop(session);
        pkcs11.finalize().unwrap();
        for _ in 0..2 {
            let away = signer.sign(&batch).await.unwrap_err().0;
            assert!(away.starts_with("the token \"landfall\" does not answer: "), "{away}");
            assert_eq!(signer.newest_seq(), 1);
        }
        unavailable(&signer, of(&carrier)).await;
        signer.addresses(&[sponsor()]).await.unwrap_err();
        // It is there again, and the numbers of entries follow each other.
        initialize();
        let numbers: Vec<u64> = signer.sign(&batch).await.unwrap().into_iter().map(|it| it.unwrap().seq).collect();
        assert_eq!(numbers, [2, 3]);
        assert_eq!(verify(&world.journal()).unwrap().newest_seq, 3);
    });
}

fn sol(transfer: u8) -> Intent {
    Intent {
        chain_ref: SOLANA.to_owned(),
        route: Route::Guard { program: None, decimals: 9 },
        asset: AssetId::Native,
        payer: Address::parse(Family::Solana, "H1WzkjCHNvGD2fKsM5Cee54W3kryZRLsFHYFPxgfH3fN").unwrap(),
        destination: Address::Solana([2; 32]),
        ..intent(transfer)
    }
}

fn alice() -> KeyPath {
    KeyPath::of_wallet(Family::Solana, "alice", "")
}

fn is_signed_by(who: &Address, signature: &[u8], message: &[u8]) -> bool {
    let key = VerifyingKey::from_bytes(who.as_bytes().try_into().unwrap()).unwrap();
    key.verify_strict(message, &Signature::from_slice(signature).unwrap()).is_ok()
}

async fn on_solana(signer: &Embedded) -> (KeyPath, Address) {
    let path = KeyPath::of_sponsor(Family::Solana, SOLANA, 0);
    (path, signer.addresses(&[path]).await.unwrap()[0])
}

#[test]
fn a_transaction_of_solana_is_signed_by_the_token_and_by_the_payers_derived_key() {
    alone("signing::a_transaction_of_solana_is_signed_by_the_token_and_by_the_payers_derived_key", async {
        let world = World::new();
        let signer = open(&world);
        let (path, sponsor) = on_solana(&signer).await;
        one(&signer, SignRequest::Intent { path: alice(), intent: sol(1), heals: 0 }).await.unwrap();
        let (compute_limit, compute_price, memo, makes_account) = (900, 1, false, false);
        let blockhash = BlockHash([8; 32]);
        let terms = GuardTerms { blockhash, rent: 890_880, compute_limit, compute_price, memo, makes_account };
        let guarded = Guarded { sponsor, intent: sol(1), terms };
        let request = SignRequest::Guarded { path, payer: alice(), guarded: guarded.clone() };
        let signed = one(&signer, request.clone()).await.unwrap();
        let message = landfall_solana::pay::guarded(&guarded).unwrap().message().to_vec();
        assert!(is_signed_by(&sponsor, &signed.bytes[1..65], &message));
        assert!(is_signed_by(&sol(1).payer, &signed.bytes[65..129], &message));
        assert_eq!(signed.tx, Some(TxId::Solana(signed.bytes[1..65].try_into().unwrap())));

        world.now.store(NOW + 300 + 24 * 3_600, Ordering::Relaxed);
        let reclaim = Reclaim { sponsor, guards: vec![(sol(1), 890_880)], blockhash, compute_limit };
        let taken = SignRequest::Reclaim { path, payers: vec![alice()], reclaim: reclaim.clone() };
        let back = one(&signer, taken.clone()).await.unwrap();
        let message = landfall_solana::pay::reclaim(&reclaim).unwrap().message().to_vec();
        assert!(is_signed_by(&sponsor, &back.bytes[1..65], &message));
        assert!(is_signed_by(&sol(1).payer, &back.bytes[65..129], &message));
        drop(signer);
        assert_eq!(one(&open(&world), taken).await, Ok(back));
        assert_eq!(open(&world).newest_seq(), 3);
    });
}
