//! What the port signs, and what it refuses with the journal's help.

use std::sync::atomic::Ordering;

use landfall_chain::{
    Address, AssetId, Authorization, Carried, Carrier, Family, Intent, Journaled, KeyPath, Refill, SIGN_REQUESTS_MAX,
    Seed, SignRequest, Signed, SignedAuthorization, SignedIntent, Signer, TxId, U256,
};
use landfall_evm::pay::{authorization_digest, cancellation_digest, carrier as unsigned, intent_digest, signer_of};
use landfall_signer::{Policy, Sendable};

use crate::world::{CHAIN, IMPLEMENTATIONS, NOW, World, by_delegate, carrier, intent, of_intent, one, sponsor, wallet};

const OTHER: Address = Address::Evm([9; 20]);

fn payment(carrier: &Carrier) -> &SignedIntent {
    let Carried::Payment { signed, .. } = &carrier.carried else { panic!("{carrier:?}") };
    signed
}

#[tokio::test]
async fn an_intent_is_signed_by_its_payer_and_equal_requests_give_equal_bytes() {
    let world = World::new();
    let first = one(&world.open(), of_intent(intent(1))).await.unwrap();
    let digest = intent_digest(&intent(1)).unwrap();
    let signature = first.bytes.as_slice().try_into().unwrap();
    assert_eq!(signer_of(&digest, signature), Some(intent(1).payer));
    assert_eq!((first.tx, first.seq), (None, 1));

    // Also after a restart, and when its deadline has passed: it is the entry that is there.
    world.now.store(NOW + 10_000, Ordering::Relaxed);
    let signer = world.open();
    assert_eq!(one(&signer, of_intent(intent(1))).await.unwrap(), first);
    assert_eq!(signer.newest_seq(), 1);
}

#[tokio::test]
async fn a_carrier_is_a_transaction_of_its_sponsor_and_equal_requests_give_equal_bytes() {
    let world = World::new();
    let signer = world.open();
    let carrier = carrier(&signer, intent(1)).await;
    let request = SignRequest::Carrier { path: sponsor(), carrier: carrier.clone() };
    let signed = one(&signer, request.clone()).await.unwrap();
    assert_eq!(signed.seq, 2);
    // Type 2, and the sponsor's signature at its end.
    assert_eq!(signed.bytes[0], 2);
    let (r_and_s, digest) = (&signed.bytes[signed.bytes.len() - 65..], unsigned(&carrier).unwrap().digest());
    let signature = |v| [&r_and_s[..32], &r_and_s[33..], &[v]].concat();
    let signature = [27, 28].map(|v| <[u8; 65]>::try_from(signature(v)).unwrap());
    let signature = signature.into_iter().find(|signature| signer_of(&digest, signature) == Some(carrier.sponsor));
    let (raw, id) = unsigned(&carrier).unwrap().signed(&signature.unwrap());
    assert_eq!((raw, Some(id)), (signed.bytes.clone(), signed.tx));
    assert!(matches!(id, TxId::Evm(_)));

    drop(signer);
    let signer = world.open();
    assert_eq!(one(&signer, request).await.unwrap(), signed);
    let bumped = Carrier { max_fee: carrier.max_fee * 2, ..carrier };
    assert_eq!(one(&signer, SignRequest::Carrier { path: sponsor(), carrier: bumped }).await.unwrap().seq, 3);
}

/// Derived from the same words, paths and fields by viem 2.57.20.
#[tokio::test]
async fn another_library_signs_the_same_bytes() {
    let world = World::new();
    let signer = world.open();
    let carrier = carrier(&signer, intent(1)).await;
    assert_eq!(carrier.sponsor.to_string(), "0xD6555a300B6F226b2B38d3f8D3F6B7fcaADc0201");
    let digest = "3aee203199c871fadf2a3cb80338079895ed5e3feb63f6d26543c948bea91baa";
    assert_eq!(hex::encode(intent_digest(&intent(1)).unwrap()), digest);
    let signature = [
        "7bdaefa27e64a328c2de4bfa156f63ced33a5c980a0bd2ea7e0ece977e138c49",
        "34558fe4613a6134110e44f19d3806ad5789dc68bc17a171d795eb37d018fc2d",
        "1c",
    ];
    assert_eq!(hex::encode(&payment(&carrier).signature), signature.concat());
    let signed = one(&signer, SignRequest::Carrier { path: sponsor(), carrier }).await.unwrap();
    let raw = [
        "02f9019382210507843b9aca0084b2d05e00830186a094030303030303030303030303030303030303030380b90124e3",
        "ee160e0000000000000000000000003938bbc3df0e431a1d5cb2d801b84e51163cb51e00000000000000000000000002",
        "020202020202020202020202020202020202020000000000000000000000000000000000000000000000000000000000",
        "4c4b40000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000006b49d32cedb420abb366f97ca8a692c9fc47685fae2c4c2de48d6af70000000000",
        "000000000000000000000000000000000000000000000000000000000000000000001c7bdaefa27e64a328c2de4bfa15",
        "6f63ced33a5c980a0bd2ea7e0ece977e138c4934558fe4613a6134110e44f19d3806ad5789dc68bc17a171d795eb37d0",
        "18fc2dc001a02e4f430bdcc69cd625431d4af72e894705519cae78dce4702f7d206b8d018730a07674fcfde4b2416891",
        "43c0a375b821c7d3ff69e7319271ab5196d2d3dc71973a",
    ];
    assert_eq!(hex::encode(&signed.bytes), raw.concat());
    let hash = "d1a58e68a5fc9089b90c3262d723eca5fcd4c99cb0c234b937ff6c9e2c058cdd";
    assert_eq!(hex::encode(signed.tx.unwrap().as_bytes()), hash);
}

#[tokio::test]
async fn a_transfer_gets_no_second_content() {
    let world = World::new();
    let bob = KeyPath::of_wallet(Family::Evm, "bob", "");
    let bobs = world.open().addresses(&[bob]).await.unwrap()[0];
    one(&world.open(), of_intent(intent(1))).await.unwrap();
    let signer = world.open();
    let others = [
        of_intent(Intent { destination: OTHER, ..intent(1) }),
        of_intent(Intent { amount: U256::from(1), ..intent(1) }),
        of_intent(Intent { deadline: NOW + 200, amount: U256::from(1), ..intent(1) }),
        SignRequest::Intent { path: bob, intent: Intent { payer: bobs, ..intent(1) }, heals: 0 },
    ];
    for request in others {
        let refusal = one(&signer, request).await.unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the signer refuses: the transfer has entry 1 of the journal, of another content"
        );
    }
    assert_eq!(signer.newest_seq(), 1);
}

#[tokio::test]
async fn two_contents_in_one_call_are_one_too_many() {
    let world = World::new();
    let signer = world.open();
    let other = Intent { amount: U256::from(1), ..intent(1) };
    let requests = [of_intent(intent(1)), of_intent(other), of_intent(intent(1)), of_intent(intent(2))];
    let signed = signer.sign(&requests).await.unwrap();
    assert_eq!(signed[0].as_ref().unwrap().seq, 1);
    assert!(signed[1].is_err());
    assert_eq!(signed[2], signed[0]);
    assert_eq!(signed[3].as_ref().unwrap().seq, 2);
}

#[tokio::test]
async fn a_copy_of_the_store_gets_no_second_deadline_for_a_transfer() {
    let world = World::new();
    let signer = world.open();
    assert_eq!(one(&signer, of_intent(intent(1))).await.unwrap().seq, 1);
    world.now.store(NOW + 400, Ordering::Relaxed);
    let second = of_intent(Intent { deadline: NOW + 700, ..intent(1) });
    let refusal = one(&signer, second).await.unwrap_err().0;
    assert_eq!(refusal, "0 earlier deadlines are known to who asks, and 1 to the journal");
    assert_eq!(one(&signer, of_intent(intent(1))).await.unwrap().seq, 1, "the first one as often as it is asked for");
}

#[tokio::test]
async fn a_transfer_is_healed_three_times_by_who_knows_of_all_its_deadlines_and_the_journal_is_opened_again() {
    let world = World::new();
    for heals in 0..4_u64 {
        let deadline = NOW + 300 * (heals + 1);
        world.now.store(deadline - 200, Ordering::Relaxed);
        let intent = Intent { deadline, ..intent(1) };
        let request = SignRequest::Intent { path: wallet(), intent, heals: usize::try_from(heals).unwrap() };
        assert_eq!(one(&world.open(), request).await.unwrap().seq, heals + 1);
    }
    world.now.store(NOW + 1_300, Ordering::Relaxed);
    let fifth = Intent { deadline: NOW + 1_500, ..intent(1) };
    let refusal =
        one(&world.open(), SignRequest::Intent { path: wallet(), intent: fifth, heals: 4 }).await.unwrap_err().0;
    assert_eq!(refusal, "the transfer was signed with 4 deadlines already");
}

#[tokio::test]
async fn a_carrier_carries_only_what_this_journal_has() {
    let world = World::new();
    let signer = world.open();
    let good = carrier(&signer, intent(1)).await;
    let of_carrier = |carrier| SignRequest::Carrier { path: sponsor(), carrier };
    let carrying = |signed| {
        let carried = Carried::Payment { signed, authorization: None };
        of_carrier(Carrier { carried, ..good.clone() })
    };
    let signature = payment(&good).signature.clone();
    let mut torn = signature.clone();
    torn[40] ^= 1;
    let other = Intent { deadline: NOW + 301, ..intent(1) };
    let cases = [
        (
            carrying(SignedIntent { intent: intent(2), signature: signature.clone() }),
            "the intent is not in the journal",
        ),
        (carrying(SignedIntent { intent: other, signature: signature.clone() }), "the intent is not in the journal"),
        (carrying(SignedIntent { intent: intent(1), signature: torn }), "the intent has no signature of its payer"),
        (
            carrying(SignedIntent { intent: intent(1), signature: signature[..64].to_vec() }),
            "the intent has no signature of its payer",
        ),
        (of_carrier(Carrier { sponsor: OTHER, ..good.clone() }), "the sponsor is 0x0909"),
        (SignRequest::Carrier { path: wallet(), carrier: good.clone() }, "an intent is signed by a key of wallets"),
        (of_carrier(Carrier { max_fee: 10_u128.pow(12), ..good.clone() }), "it may cost 100000000000000000"),
    ];
    for (request, expected) in cases {
        let refusal = one(&signer, request).await.unwrap_err().0;
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    assert_eq!(signer.newest_seq(), 1);
    one(&signer, of_carrier(good)).await.unwrap();
}

#[tokio::test]
async fn what_the_policy_refuses_is_not_journaled() {
    let world = World::new();
    let signer = world.open();
    let sponsors = KeyPath { seed: Seed::Sponsors, ..wallet() };
    let solana = KeyPath::of_wallet(Family::Solana, "alice", "");
    let out_of_range = KeyPath { account: 1 << 31, ..wallet() };
    let cases = [
        (of_intent(Intent { chain_ref: "eip155:1".to_owned(), ..intent(1) }), "is not on the list of what may be sent"),
        (of_intent(Intent { deadline: NOW + 331, ..intent(1) }), "331 s ahead of the signer's clock, and may be 330"),
        (of_intent(Intent { payer: OTHER, ..intent(1) }), "is of 0x3938bbC3dF0e431A1d5CB2d801B84e51163cB51e"),
        (SignRequest::Intent { path: sponsors, intent: intent(1), heals: 0 }, "a carrier by a key of sponsors"),
        (SignRequest::Intent { path: solana, intent: intent(1), heals: 0 }, "is of another family than route erc3009"),
        (
            SignRequest::Intent { path: out_of_range, intent: intent(1), heals: 0 },
            "has a number that is not below 2^31",
        ),
    ];
    for (request, expected) in cases {
        let refusal = one(&signer, request).await.unwrap_err().0;
        assert!(refusal.ends_with(expected), "{refusal}");
    }
    assert_eq!(signer.newest_seq(), 0);
    assert!(signer.addresses(&[out_of_range]).await.unwrap_err().0.contains("not below 2^31"));
}

#[tokio::test]
async fn a_call_takes_64_requests_and_no_more() {
    let world = World::new();
    let signer = world.open();
    let requests: Vec<_> = (0..=64).map(|transfer| of_intent(intent(transfer))).collect();
    let error = signer.sign(&requests).await.unwrap_err();
    assert_eq!(error.to_string(), "the signer is not available: 65 requests in one call, at most 64");
    assert_eq!(signer.newest_seq(), 0);
    let signed = signer.sign(&requests[..SIGN_REQUESTS_MAX]).await.unwrap();
    let numbers: Vec<u64> = signed.into_iter().map(|signed| signed.unwrap().seq).collect();
    assert_eq!(numbers, (1..=64).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_wallet_authorizes_one_delegate_for_each_nonce_and_a_carrier_brings_what_is_journaled() {
    let world = World::new();
    let signer = world.open();
    let path = wallet();
    let authorization = |implementation: Address, nonce: u64| {
        let (chain_ref, wallet) = (CHAIN.to_owned(), intent(1).payer);
        Authorization { chain_ref, wallet, implementation, nonce }
    };
    let of = |authorization: &Authorization| SignRequest::Authorization { path, authorization: authorization.clone() };
    let first = authorization(IMPLEMENTATIONS[0], 3);
    let signed = one(&signer, of(&first)).await.unwrap();
    let digest = authorization_digest(&first).unwrap();
    assert_eq!(signer_of(&digest, signed.bytes.as_slice().try_into().unwrap()), Some(first.wallet));
    assert_eq!((signed.tx, signed.seq), (None, 1));

    let native = Intent { asset: AssetId::Native, route: by_delegate(0), ..intent(1) };
    let signature = one(&signer, of_intent(native.clone())).await.unwrap().bytes;
    let sponsor_address = signer.addresses(&[sponsor()]).await.unwrap()[0];
    let of_carrier = |authorization: SignedAuthorization| {
        let signed = SignedIntent { intent: native.clone(), signature: signature.clone() };
        let (gas_limit, max_fee, tip) = (100_000, 3_000_000_000, 1_000_000_000);
        let carried = Carried::Payment { signed, authorization: Some(Box::new(authorization)) };
        let carrier = Carrier { sponsor: sponsor_address, carried, nonce: 7, gas_limit, max_fee, tip };
        SignRequest::Carrier { path: sponsor(), carrier }
    };
    let beside = SignedAuthorization { authorization: first.clone(), signature: signed.bytes.clone() };
    let carrier = one(&signer, of_carrier(beside.clone())).await.unwrap();
    assert_eq!((carrier.bytes[0], carrier.seq), (4, 3), "type 4");
    // Another nonce of the wallet that was never asked for, though its signature were good.
    let unknown = SignedAuthorization { authorization: authorization(IMPLEMENTATIONS[0], 4), ..beside.clone() };
    let why = one(&signer, of_carrier(unknown)).await.unwrap_err().0;
    assert_eq!(why, "the authorization is not in the journal");

    // After a restart the same bytes; and no other delegate at a nonce that was given.
    drop(signer);
    let signer = world.open();
    assert_eq!(one(&signer, of(&first)).await.unwrap(), signed);
    assert_eq!(one(&signer, of_carrier(beside)).await.unwrap(), carrier);
    let other = one(&signer, of(&authorization(IMPLEMENTATIONS[1], 3))).await.unwrap_err().0;
    assert_eq!(other, "this nonce of the wallet has entry 1 of the journal, of another content");
    assert_eq!(one(&signer, of(&authorization(IMPLEMENTATIONS[1], 4))).await.unwrap().seq, 4);
    let unlisted = one(&signer, of(&authorization(OTHER, 5))).await.unwrap_err().0;
    assert!(unlisted.ends_with("is not on the list of what may act for wallets on eip155:8453"), "{unlisted}");
    assert_eq!(signer.newest_seq(), 4);
}

#[tokio::test]
async fn what_is_cancelled_gets_no_new_payment_and_no_later_deadline_also_after_a_restart() {
    let world = World::new();
    let signer = world.open();
    let cancel = |intent: Intent| SignRequest::Cancel { path: wallet(), intent };
    assert_eq!(one(&signer, cancel(intent(1))).await.unwrap_err().0, "the intent is not in the journal");
    let carrier = carrier(&signer, intent(1)).await;
    let of_carrier = |carrier: &Carrier| SignRequest::Carrier { path: sponsor(), carrier: carrier.clone() };
    let paid = one(&signer, of_carrier(&carrier)).await.unwrap();
    let cancelled = one(&signer, cancel(intent(1))).await.unwrap();
    let digest = cancellation_digest(&intent(1)).unwrap();
    assert_eq!(signer_of(&digest, cancelled.bytes.as_slice().try_into().unwrap()), Some(intent(1).payer));
    assert_eq!((cancelled.tx, cancelled.seq), (None, 3));

    drop(signer);
    let signer = world.open();
    assert_eq!(one(&signer, cancel(intent(1))).await.unwrap(), cancelled);
    assert_eq!(one(&signer, of_carrier(&carrier)).await.unwrap(), paid, "those bytes may have left already");
    let expected = "the transfer was cancelled by entry 3 of the journal";
    let bumped = Carrier { max_fee: carrier.max_fee * 2, ..carrier.clone() };
    assert_eq!(one(&signer, of_carrier(&bumped)).await.unwrap_err().0, expected);
    world.now.store(NOW + 400, Ordering::Relaxed);
    let healed = Intent { deadline: NOW + 600, ..intent(1) };
    let healed = SignRequest::Intent { path: wallet(), intent: healed, heals: 1 };
    assert_eq!(one(&signer, healed).await.unwrap_err().0, expected);

    let signed = SignedIntent { intent: intent(1), signature: cancelled.bytes.clone() };
    let cancelling = Carrier { carried: Carried::Cancellation(signed.clone()), ..carrier.clone() };
    let sent = one(&signer, of_carrier(&cancelling)).await.unwrap();
    assert_eq!((sent.bytes[0], sent.seq), (2, 4));
    let as_payment = Carried::Payment { signed, authorization: None };
    let why = one(&signer, of_carrier(&Carrier { carried: as_payment, ..carrier })).await.unwrap_err().0;
    assert!(why.starts_with("the intent has no signature of its payer"), "{why}");
    drop(signer);
    assert_eq!(one(&world.open(), of_carrier(&cancelling)).await.unwrap(), sent);
    let page = world.open().journal(CHAIN, 2).await.unwrap();
    let (sponsor, tx) = (cancelling.sponsor, sent.tx.unwrap());
    let of_sponsor = Journaled::Carrier { transfer_id: Some([1; 16]), sponsor, nonce: Some(7), tx };
    let entries = [(3, Journaled::Cancellation { transfer_id: [1; 16] }), (4, of_sponsor)];
    assert_eq!(page.entries, entries);
}

#[tokio::test]
async fn a_wallets_delegate_is_taken_away_by_one_clearing_for_each_nonce_which_a_sponsor_carries() {
    let world = World::new();
    let signer = world.open();
    let (path, of) = (wallet(), intent(1).payer);
    let clearing = Authorization::clearing(CHAIN.to_owned(), of, 4);
    let request = SignRequest::Clear { path, clearing: clearing.clone() };
    let signed = one(&signer, request.clone()).await.unwrap();
    let digest = authorization_digest(&clearing).unwrap();
    assert_eq!(signer_of(&digest, signed.bytes.as_slice().try_into().unwrap()), Some(of));
    let delegate = Authorization { implementation: IMPLEMENTATIONS[0], ..clearing.clone() };
    let why = one(&signer, SignRequest::Authorization { path, authorization: delegate }).await.unwrap_err().0;
    assert_eq!(why, "this nonce of the wallet has entry 1 of the journal, of another content");
    let every = Authorization { chain_ref: "eip155:0".to_owned(), ..clearing.clone() };
    assert!(one(&signer, SignRequest::Clear { path, clearing: every }).await.is_err());

    let sponsor_address = signer.addresses(&[sponsor()]).await.unwrap()[0];
    let of_carrier = |nonce: u64| {
        let authorization = Authorization { nonce, ..clearing.clone() };
        let carried = Carried::Clearings(vec![SignedAuthorization { authorization, signature: signed.bytes.clone() }]);
        let (gas_limit, max_fee, tip) = (100_000, 3_000_000_000, 1_000_000_000);
        let carrier = Carrier { sponsor: sponsor_address, carried, nonce: 8, gas_limit, max_fee, tip };
        SignRequest::Carrier { path: sponsor(), carrier }
    };
    let sent = one(&signer, of_carrier(4)).await.unwrap();
    assert_eq!((sent.bytes[0], sent.seq), (4, 2), "type 4");
    assert_eq!(one(&signer, of_carrier(5)).await.unwrap_err().0, "the authorization is not in the journal");
    drop(signer);
    let signer = world.open();
    assert_eq!(one(&signer, request).await.unwrap(), signed);
    assert_eq!(one(&signer, of_carrier(4)).await.unwrap(), sent);
    let entries = signer.journal(CHAIN, 0).await.unwrap().entries;
    let (sponsor, tx) = (sponsor_address, sent.tx.unwrap());
    let of_sponsor = Journaled::Carrier { transfer_id: None, sponsor, nonce: Some(8), tx };
    assert_eq!(entries, [(1, Journaled::Authorization(clearing)), (2, of_sponsor)]);
}

#[tokio::test]
async fn a_treasury_gives_each_sponsor_of_its_own_what_the_journal_has_for_that_nonce_and_nothing_else() {
    let world = World::new();
    let signer = world.open();
    let path = KeyPath::of_treasury(Family::Evm, CHAIN);
    let other = KeyPath::of_sponsor(Family::Evm, CHAIN, 3);
    let addresses = signer.addresses(&[path, sponsor(), other]).await.unwrap();
    let [treasury, first, second] = addresses[..] else { panic!("three addresses") };
    let refill = |number: u32, recipient: Address, amount: u64| Refill {
        chain_ref: CHAIN.to_owned(),
        number,
        recipient,
        amount: U256::from(amount),
    };
    let asked = |path: KeyPath, refill: Refill, nonce, max_fee| {
        let carried = Carried::Refill(refill);
        let carrier = Carrier { sponsor: treasury, carried, nonce, gas_limit: 25_200, max_fee, tip: 1 };
        SignRequest::Carrier { path, carrier }
    };
    let (good, fee) = (refill(0, first, 5_000), 3_000_000_000);
    let signed = one(&signer, asked(path, good.clone(), 4, fee)).await.unwrap();
    assert_eq!((signed.bytes[0], signed.seq), (2, 1), "type 2");
    assert_eq!(one(&signer, asked(path, good.clone(), 4, fee)).await.unwrap(), signed, "the same bytes again");
    let raised = one(&signer, asked(path, good.clone(), 4, 2 * fee)).await.unwrap();
    assert_eq!(raised.seq, 2, "another offer for the same");
    let next = one(&signer, asked(path, refill(3, second, 6_000), 5, fee)).await.unwrap();
    assert_eq!(next.seq, 3);
    drop(signer);
    let signer = world.open();
    let most = 10_u64.pow(17);
    let cases = [
        (
            asked(path, refill(0, first, 5_001), 4, fee),
            "this nonce of the treasury has entry 1 of the journal, of another",
        ),
        (asked(path, refill(3, second, 5_000), 4, 3 * fee), "this nonce of the treasury has entry 1 of the journal"),
        (asked(path, refill(0, first, 5_000), 5, fee), "this nonce of the treasury has entry 3 of the journal"),
        (asked(path, refill(0, second, 5_000), 6, fee), "is not sponsor 0 of"),
        (asked(path, refill(0, treasury, 5_000), 6, fee), "is not sponsor 0 of"),
        (asked(path, refill(0, Address::Evm([9; 20]), 5_000), 6, fee), "is not sponsor 0 of"),
        (asked(path, refill(0, first, most + 1), 6, fee), "a refill of 100000000000000001: expected is 1 to"),
        (asked(sponsor(), refill(3, second, 5_000), 6, fee), "the sponsor is"),
        (asked(wallet(), refill(0, first, 5_000), 6, fee), "an intent is signed by a key of wallets"),
    ];
    for (request, expected) in cases {
        let why = one(&signer, request).await.unwrap_err().0;
        assert!(why.contains(expected), "{why}, not {expected}");
    }
    assert_eq!(one(&signer, asked(path, refill(0, first, most), 6, fee)).await.unwrap().seq, 4);
    // Its key carries nothing.
    let mut carrying = carrier(&signer, intent(1)).await;
    carrying.sponsor = treasury;
    let why = one(&signer, SignRequest::Carrier { path, carrier: carrying }).await.unwrap_err().0;
    assert_eq!(why, "a treasury refills sponsors, and carries nothing");
    let entries = signer.journal(CHAIN, 0).await.unwrap().entries;
    let of =
        |nonce, refill: Refill, signed: &Signed| Journaled::Refill { treasury, nonce, refill, tx: signed.tx.unwrap() };
    let expected =
        [(1, of(4, good.clone(), &signed)), (2, of(4, good, &raised)), (3, of(5, refill(3, second, 6_000), &next))];
    assert_eq!(entries[..3], expected);
}

#[tokio::test]
async fn a_refill_that_was_signed_may_be_carried_on_when_less_may_be_given() {
    let world = World::new();
    let signer = world.open();
    let path = KeyPath::of_treasury(Family::Evm, CHAIN);
    let addresses = signer.addresses(&[path, sponsor()]).await.unwrap();
    let [treasury, recipient] = addresses[..] else { panic!("two addresses") };
    let asked = |nonce, max_fee| {
        let refill = Refill { chain_ref: CHAIN.to_owned(), number: 0, recipient, amount: U256::from(5_000) };
        let carried = Carried::Refill(refill);
        let carrier = Carrier { sponsor: treasury, carried, nonce, gas_limit: 25_200, max_fee, tip: 1 };
        SignRequest::Carrier { path, carrier }
    };
    let fee = 3_000_000_000;
    let signed = one(&signer, asked(4, fee)).await.unwrap();
    drop(signer);
    let (chain_ref, cost_max) = (CHAIN.to_owned(), 10_u128.pow(16));
    let less = Sendable { chain_ref, assets: Vec::new(), caps: Vec::new(), cost_max, refill_max: 4_999 };
    let signer = world.open_by(Policy::new([less]));
    assert_eq!(one(&signer, asked(4, fee)).await.unwrap(), signed);
    assert_eq!(one(&signer, asked(4, 2 * fee)).await.unwrap().seq, 2);
    let why = one(&signer, asked(5, fee)).await.unwrap_err().0;
    assert_eq!(why, "a refill of 5000: expected is 1 to 4999 on eip155:8453");
}
