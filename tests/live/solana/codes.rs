//! What the cluster does not have, it refuses as nodes do: by the codes that a watcher distinguishes.
//!
//! On surfpool this is the work of the mended chain, and shows that it mends; on a validator it shows that we know its
//! codes.

use serde_json::json;
use solana_sdk::signature::{Signature, Signer};

use crate::solana::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_refused_with_the_codes_of_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path()).await;
    let (first, tip) = (cluster.rpc("getFirstAvailableBlock", json!([])).await, cluster.slot("confirmed").await);
    let header = json!({ "commitment": "confirmed", "transactionDetails": "none", "rewards": false });
    let beyond = tip + 10_000;
    let unknown = Signature::from([7; 64]).to_string();
    for (method, params, code) in [
        ("getBlock", json!([beyond, header]), "-32004"),
        ("getSlot", json!([{ "commitment": "confirmed", "minContextSlot": beyond }]), "-32016"),
        ("getSignaturesForAddress", json!([cluster.payer.pubkey().to_string(), { "until": unknown }]), "-32020"),
    ] {
        let refusal = cluster.ask(method, params).await.unwrap_err();
        assert!(refusal.contains(code), "{method}: {refusal}");
    }
    let slots = json!([first, tip, { "commitment": "confirmed" }]);
    let slots = cluster.rpc("getBlocks", slots).await;
    let listed: Vec<u64> = slots.as_array().unwrap().iter().map(|slot| slot.as_u64().unwrap()).collect();
    let skipped: Vec<u64> = (first.as_u64().unwrap()..=tip).filter(|slot| !listed.contains(slot)).collect();
    for slot in &skipped {
        let refusal = cluster.ask("getBlock", json!([slot, header])).await.unwrap_err();
        assert!(refusal.contains("-32007"), "{slot}: {refusal}");
    }
    println!("{} blocks, {} slots without one", listed.len(), skipped.len());
}
