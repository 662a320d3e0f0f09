//! Transactions of Solana: journaled as intents first, signed by both keys, and refused with other content.

use std::sync::atomic::Ordering;

use ed25519_dalek::{Signature, VerifyingKey};
use landfall_chain::{
    Address, AssetId, BlockHash, Family, GuardTerms, Guarded, Intent, Journaled, KeyPath, Reclaim, Route, SignRequest,
    Signer, TxId, U256,
};
use landfall_signer::Embedded;

use crate::world::{NOW, SOLANA, World, intent, of_intent, one};

pub(crate) fn wallet() -> KeyPath {
    KeyPath::of_wallet(Family::Solana, "alice", "")
}

fn sponsor() -> KeyPath {
    KeyPath::of_sponsor(Family::Solana, SOLANA, 0)
}

/// Of alice, whose address is the vector's.
pub(crate) fn sol() -> Intent {
    Intent {
        chain_ref: SOLANA.to_owned(),
        route: Route::Guard { program: None, decimals: 9 },
        asset: AssetId::Native,
        payer: Address::parse(Family::Solana, "H1WzkjCHNvGD2fKsM5Cee54W3kryZRLsFHYFPxgfH3fN").unwrap(),
        destination: Address::Solana([2; 32]),
        amount: U256::from(5_000_000),
        ..intent(1)
    }
}

async fn guarded(signer: &Embedded, intent: Intent, blockhash: u8) -> SignRequest {
    let sponsor_address = signer.addresses(&[sponsor()]).await.unwrap()[0];
    let blockhash = BlockHash([blockhash; 32]);
    let terms = GuardTerms {
        blockhash,
        rent: 890_880,
        compute_limit: 900,
        compute_price: 1,
        memo: false,
        makes_account: false,
    };
    SignRequest::Guarded {
        path: sponsor(),
        payer: wallet(),
        guarded: Guarded { sponsor: sponsor_address, intent, terms },
    }
}

fn is_signed_by(who: &Address, signature: &[u8], message: &[u8]) -> bool {
    let key = VerifyingKey::from_bytes(who.as_bytes().try_into().unwrap()).unwrap();
    key.verify_strict(message, &Signature::from_slice(signature).unwrap()).is_ok()
}

#[tokio::test]
async fn a_transaction_of_solana_is_signed_by_sponsor_and_payer_behind_its_intent() {
    let world = World::new();
    let signer = world.open();
    let noted = one(&signer, SignRequest::Intent { path: wallet(), intent: sol(), heals: 0 }).await.unwrap();
    assert_eq!((noted.bytes.as_slice(), noted.tx, noted.seq), (&[][..], None, 1), "noted, and nothing signed");
    let request = guarded(&signer, sol(), 8).await;
    let signed = one(&signer, request.clone()).await.unwrap();
    let SignRequest::Guarded { guarded: asked, .. } = &request else { unreachable!() };
    let message = landfall_solana::pay::guarded(asked).unwrap().message().to_vec();
    assert_eq!((signed.bytes[0], &signed.bytes[129..], signed.seq), (2, &message[..], 2));
    assert!(is_signed_by(&asked.sponsor, &signed.bytes[1..65], &message));
    assert!(is_signed_by(&asked.intent.payer, &signed.bytes[65..129], &message));
    assert_eq!(signed.tx, Some(TxId::Solana(signed.bytes[1..65].try_into().unwrap())));

    // Another blockhash is another attempt; the same one is the same bytes, also behind the window and after a restart.
    assert_eq!(one(&signer, guarded(&signer, sol(), 9).await).await.unwrap().seq, 3);
    drop(signer);
    world.now.store(NOW + 10_000, Ordering::Relaxed);
    let signer = world.open();
    assert_eq!(one(&signer, request).await.unwrap(), signed);
    let late = one(&signer, guarded(&signer, sol(), 10).await).await.unwrap_err();
    assert!(late.0.contains("has passed by the signer's clock"), "{late}");
    assert_eq!(signer.newest_seq(), 3);
}

#[tokio::test]
async fn a_transaction_of_solana_with_other_content_than_its_intents_is_refused() {
    let signer = World::new().open();
    let request = guarded(&signer, sol(), 8).await;
    let why = one(&signer, request).await.unwrap_err();
    assert_eq!(why.0, "the intent is not in the journal");
    one(&signer, SignRequest::Intent { path: wallet(), intent: sol(), heals: 0 }).await.unwrap();
    let others = [
        Intent { amount: U256::from(6_000_000), ..sol() },
        Intent { destination: Address::Solana([3; 32]), ..sol() },
        Intent { deadline: NOW + 301, ..sol() },
    ];
    for other in others {
        let why = one(&signer, guarded(&signer, other.clone(), 8).await).await.unwrap_err();
        assert_eq!(why.0, "the intent is not in the journal", "{other:?}");
    }
    let again = Intent { amount: U256::from(6_000_000), ..sol() };
    let why = one(&signer, SignRequest::Intent { path: wallet(), intent: again, heals: 0 }).await.unwrap_err();
    assert_eq!(why.0, "the transfer has entry 1 of the journal, of another content");
    let evm = one(&signer, of_intent(intent(1))).await.unwrap_err();
    assert_eq!(evm.0, "the transfer has entry 1 of the journal, of another content", "not on another chain either");
}

/// A second after the guard of [`sol`] may be taken back.
const LATER: u64 = NOW + 300 + 24 * 3_600;

async fn reclaim(signer: &Embedded, intents: &[Intent], blockhash: u8) -> SignRequest {
    let sponsor_address = signer.addresses(&[sponsor()]).await.unwrap()[0];
    let guards = intents.iter().map(|intent| (intent.clone(), 890_880)).collect();
    let blockhash = BlockHash([blockhash; 32]);
    SignRequest::Reclaim {
        path: sponsor(),
        payers: vec![wallet(); intents.len()],
        reclaim: Reclaim { sponsor: sponsor_address, guards, blockhash, compute_limit: 900 },
    }
}

async fn note(signer: &Embedded, intent: &Intent) {
    one(signer, SignRequest::Intent { path: wallet(), intent: intent.clone(), heals: 0 }).await.unwrap();
}

#[tokio::test]
async fn guards_are_taken_back_a_day_late_at_the_earliest_and_nothing_is_signed_for_their_transfers_again() {
    let world = World::new();
    let signer = world.open();
    let intents = [sol(), Intent { transfer_id: [9; 16], ..sol() }];
    for intent in &intents {
        note(&signer, intent).await;
    }
    let attempt = guarded(&signer, sol(), 8).await;
    one(&signer, attempt.clone()).await.unwrap();
    let request = reclaim(&signer, &intents, 8).await;
    world.now.store(LATER - 1, Ordering::Relaxed);
    let early = one(&signer, request.clone()).await.unwrap_err();
    assert!(early.0.contains("is kept until"), "{early}");
    world.now.store(LATER, Ordering::Relaxed);
    let signed = one(&signer, request.clone()).await.unwrap();
    let SignRequest::Reclaim { reclaim: asked, .. } = &request else { unreachable!() };
    let message = landfall_solana::pay::reclaim(asked).unwrap().message().to_vec();
    assert_eq!((signed.bytes[0], &signed.bytes[129..], signed.seq), (2, &message[..], 4), "one wallet, two guards");
    assert!(is_signed_by(&asked.sponsor, &signed.bytes[1..65], &message));
    assert!(is_signed_by(&sol().payer, &signed.bytes[65..129], &message));
    let (sponsor, blockhash, tx) = (asked.sponsor, asked.blockhash, signed.tx.unwrap());
    let entry = Journaled::Reclaim { sponsor, blockhash, tx };
    assert_eq!(signer.journal(SOLANA, 3).await.unwrap().entries, [(4, entry)]);
    // The same one is the same bytes, also after a restart; and a clock that is set back brings nothing to life.
    drop(signer);
    let signer = world.open();
    assert_eq!(one(&signer, request).await.unwrap(), signed);
    world.now.store(NOW, Ordering::Relaxed);
    for request in [attempt, guarded(&signer, sol(), 9).await] {
        let why = one(&signer, request).await.unwrap_err();
        assert_eq!(why.0, "the guard of this transfer was taken back: nothing would refuse a second payment");
    }
    assert_eq!(signer.newest_seq(), 4);
}

#[tokio::test]
async fn a_reclaim_of_what_is_not_in_the_journal_or_to_somebody_else_is_refused_with_the_reason() {
    let world = World::new();
    let signer = world.open();
    note(&signer, &sol()).await;
    world.now.store(LATER, Ordering::Relaxed);
    let with = async |change: &dyn Fn(&mut Vec<KeyPath>, &mut Reclaim)| {
        let SignRequest::Reclaim { path, mut payers, mut reclaim } = reclaim(&signer, &[sol()], 8).await else {
            unreachable!()
        };
        change(&mut payers, &mut reclaim);
        one(&signer, SignRequest::Reclaim { path, payers, reclaim }).await.unwrap_err().0
    };
    let unlisted = AssetId::Token(Address::Solana([7; 32]));
    let cases = [
        (with(&|_, it| it.sponsor = Address::Solana([2; 32])).await, "the sponsor is "),
        (with(&|payers, _| payers[0] = KeyPath::of_wallet(Family::Solana, "bob", "")).await, "the payer is "),
        (with(&|payers, _| payers[0] = sponsor()).await, "an intent is signed by a key of wallets"),
        (with(&|_, it| it.guards[0].0.transfer_id = [9; 16]).await, "the intent is not in the journal"),
        (with(&|_, it| it.guards[0].0.amount = U256::from(1)).await, "the intent is not in the journal"),
        (with(&|_, it| it.guards[0].0.asset = unlisted).await, "is not on the list of what may be sent"),
        (
            with(&|_, it| it.guards[0].0.route = Route::Guard { program: None, decimals: 6 }).await,
            "the route of native",
        ),
        (with(&|_, it| it.guards[0].0.route = intent(1).route).await, "has no guard"),
        (with(&|_, it| it.guards[0].1 = 0).await, "a guard without lamports is none"),
        (with(&|_, it| it.compute_limit = 0).await, "a limit of 0 compute units"),
        (with(&|_, it| it.guards.clear()).await, "0 guards with the keys of 1 payers"),
        (with(&|payers, _| payers.clear()).await, "1 guards with the keys of 0 payers"),
        (
            with(&|payers, it| {
                payers.push(wallet());
                it.guards.push(it.guards[0].clone());
            })
            .await,
            "the same guard twice",
        ),
    ];
    for (why, expected) in cases {
        assert!(why.contains(expected), "{why}, not {expected}");
    }
    assert_eq!(signer.newest_seq(), 1, "nothing was written");
}
