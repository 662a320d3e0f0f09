//! Transactions of Solana: journaled as intents first, signed by both keys, and refused with other content.

use std::sync::atomic::Ordering;

use ed25519_dalek::{Signature, VerifyingKey};
use landfall_chain::{
    Address, AssetId, BlockHash, Family, GuardTerms, Guarded, GuardedRefill, Intent, Journaled, KeyPath, Reclaim,
    Refill, Route, SignRequest, Signed, Signer, TxId, U256,
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

#[tokio::test]
async fn a_treasury_makes_one_guard_for_each_number_and_gives_with_it_what_the_journal_has_and_nothing_else() {
    let world = World::new();
    let signer = world.open();
    let path = KeyPath::of_treasury(Family::Solana, SOLANA);
    let of_sponsor = |number| KeyPath::of_sponsor(Family::Solana, SOLANA, number);
    let addresses = signer.addresses(&[path, of_sponsor(0), of_sponsor(3)]).await.unwrap();
    let [treasury, first, second] = addresses[..] else { panic!("three addresses") };
    let given = |number: u32, recipient: Address, amount: u64| Refill {
        chain_ref: SOLANA.to_owned(),
        number,
        recipient,
        amount: U256::from(amount),
    };
    let terms = |blockhash: u8| GuardTerms {
        blockhash: BlockHash([blockhash; 32]),
        rent: 890_880,
        compute_limit: 900,
        compute_price: 7_000,
        memo: false,
        makes_account: false,
    };
    let asked = |refill: Refill, nonce, blockhash| GuardedRefill { treasury, refill, nonce, terms: terms(blockhash) };
    let request = |refill: GuardedRefill| SignRequest::Refill { path, refill };
    let good = asked(given(0, first, 5_000), 4, 8);
    let signed = one(&signer, request(good.clone())).await.unwrap();
    let unsigned = landfall_solana::pay::refill(&good).unwrap();
    let by_treasury: [u8; 64] = signed.bytes[1..65].try_into().unwrap();
    assert_eq!(unsigned.signed(&by_treasury), (signed.bytes.clone(), signed.tx.unwrap()));
    assert_eq!(one(&signer, request(good.clone())).await.unwrap(), signed, "the same bytes again");
    let again = one(&signer, request(asked(given(0, first, 5_000), 4, 9))).await.unwrap();
    assert_eq!(again.seq, signed.seq + 1, "the same on another blockhash, whatever the time");
    drop(signer);
    let signer = world.open();
    let most = 10_u64.pow(9);
    let with = |change: &dyn Fn(&mut GuardTerms)| {
        let mut refill = asked(given(0, first, 5_000), 4, 10);
        change(&mut refill.terms);
        request(refill)
    };
    let by = |path: KeyPath| SignRequest::Refill { path, refill: asked(given(3, second, 5_000), 5, 8) };
    let cases = [
        (
            request(asked(given(0, first, 5_001), 4, 8)),
            "this nonce of the treasury has entry 1 of the journal, of another",
        ),
        (request(asked(given(3, second, 5_000), 4, 9)), "this nonce of the treasury has entry 1 of the journal"),
        (request(asked(given(0, second, 5_000), 5, 8)), "is not sponsor 0 of"),
        (request(asked(given(0, Address::Solana([9; 32]), 5_000), 5, 8)), "is not sponsor 0 of"),
        (request(asked(given(0, first, most + 1), 5, 8)), "a refill of 1000000001: expected is 1 to"),
        (request(asked(given(0, first, 0), 5, 8)), "a refill of 0: expected is 1 to"),
        (by(of_sponsor(0)), "the treasury is"),
        (by(KeyPath::of_wallet(Family::Solana, "alice", "")), "an intent is signed by a key of wallets"),
        (with(&|terms| terms.rent = 0), "a guard without lamports is none"),
        (with(&|terms| terms.rent = 20_000_000), "it may cost 20000007, and at most 10000000"),
        (with(&|terms| terms.compute_limit = 0), "a limit of 0 compute units"),
        (with(&|terms| terms.memo = true), "a refill has no memo"),
    ];
    for (request, expected) in cases {
        let why = one(&signer, request).await.unwrap_err().0;
        assert!(why.contains(expected), "{why}, not {expected}");
    }
    // Its key carries nothing.
    one(&signer, SignRequest::Intent { path: wallet(), intent: sol(), heals: 0 }).await.unwrap();
    let guarded = Guarded { sponsor: treasury, intent: sol(), terms: terms(8) };
    let why = one(&signer, SignRequest::Guarded { path, payer: wallet(), guarded }).await.unwrap_err().0;
    assert_eq!(why, "a treasury refills sponsors, and carries nothing");
    let entries = signer.journal(SOLANA, 0).await.unwrap().entries;
    let of = |signed: &Signed| {
        let (nonce, refill) = (4, given(0, first, 5_000));
        (signed.seq, Journaled::Refill { treasury, nonce, refill, tx: signed.tx.unwrap() })
    };
    assert_eq!(entries[..2], [of(&signed), of(&again)]);
}
