//! Intents that a signer signs in groups of 64, each group with one write of its journal that is on disk before a signature
//! leaves: in this process, and behind a socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use landfall_chain::{
    Address, AssetId, Family, Intent, KeyPath, Network, Route, SIGN_REQUESTS_MAX, SignRequest, Signer, U256,
};
use landfall_signer::{Embedded, NewKeystore, Passphrase, Policy, Remote, Sendable, Server, Words};
use nix::unistd::Uid;

use crate::{LOGGED, Size, network, process, ratio};

const NOW_SECS: u64 = 1_800_000_000;
/// More than any of them costs, in wei.
const COST_MAX: u128 = 1_000_000_000_000_000_000;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let groups = size.pick(4, 200, 1_000);
    let (folder, network) = (tempfile::tempdir()?, network(LOGGED)?);
    let dir = folder.path().join("keys");
    make_keystore(&dir, &passphrase(), NOW_SECS)?;
    let open = || {
        let policy = Policy::new([Sendable::of(&network, Vec::new(), COST_MAX)]);
        Embedded::open(&dir, &passphrase(), policy, Arc::new(|| NOW_SECS))
    };
    let here = {
        let signer = open()?;
        sign(&signer, &network, 0..groups).await?
    };
    let (socket, signer) = (folder.path().join("signer.sock"), open()?);
    let server = Server::bind(&socket, signer, vec![Uid::current().as_raw()])?;
    let remote = Remote::at(&socket);
    let there = tokio::select! {
        () = server.run() => anyhow::bail!("the signer answers nothing any more"),
        there = sign(&remote, &network, groups..2 * groups) => there?,
    };
    let Signed { a_second, micros } = here;
    println!("  intents a second in this process: {a_second:.0} (goal >= 2000); of the processor {micros:.0} us each");
    let (rate, share) = (there.a_second, ratio(there.a_second, a_second));
    println!("  behind a socket: {rate:.0}, {share:.2} of that (no goal)");
    Ok(())
}

struct Signed {
    a_second: f64,
    /// Of processor time, for each.
    micros: f64,
}

async fn sign(signer: &dyn Signer, network: &Network, groups: std::ops::Range<u64>) -> anyhow::Result<Signed> {
    let asset = network.assets.iter().find(|asset| matches!(asset.route, Some(Route::Erc3009 { .. })));
    let asset = asset.context("a token that takes signed authorizations")?;
    let route = asset.route.clone().context("its route")?;
    let path = KeyPath::of_wallet(Family::Evm, "alice", "");
    let payer = signer.addresses(&[path]).await?[0];
    let size = u64::try_from(SIGN_REQUESTS_MAX)?;
    let request = |nth: u64| {
        let mut transfer_id = [0; 16];
        transfer_id[..8].copy_from_slice(&nth.to_be_bytes());
        let AssetId::Token(_) = asset.id else { anyhow::bail!("{:?} is no token", asset.id) };
        let (destination, amount) = (Address::Evm([0xb0; 20]), U256::from(1));
        let (chain_ref, route) = (network.chain_ref.clone(), route.clone());
        let deadline = NOW_SECS + 300;
        let intent = Intent { transfer_id, chain_ref, route, asset: asset.id, payer, destination, amount, deadline };
        Ok(SignRequest::Intent { path, intent, heals: 0 })
    };
    let count = f64::from(u32::try_from((groups.end - groups.start) * size)?);
    let (begun, used) = (Instant::now(), process::cpu()?);
    for group in groups {
        let requests = (group * size..(group + 1) * size).map(request).collect::<anyhow::Result<Vec<_>>>()?;
        for answer in signer.sign(&requests).await? {
            answer.map_err(|refusal| anyhow::anyhow!("refused: {refusal}"))?;
        }
    }
    let (took, used) = (begun.elapsed(), process::cpu()? - used);
    Ok(Signed { a_second: count / took.as_secs_f64(), micros: used.as_secs_f64() * 1e6 / count })
}

pub(crate) fn passphrase() -> Passphrase {
    Passphrase::new("of the benchmark".to_owned().into())
}

/// A keystore that takes little work to open: that is not what is measured.
pub(crate) fn make_keystore(dir: &Path, passphrase: &Passphrase, created_at: u64) -> anyhow::Result<()> {
    let (wallets, sponsors) = (&Words::random()?, &Words::random()?);
    NewKeystore { wallets, sponsors, passphrase, work_factor: 1, created_at }.create(dir)?;
    Ok(())
}
