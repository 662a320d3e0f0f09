//! Payments from `POST /v2/crypto/transfers` to CONFIRMED, by the real program on real nodes behind a door that counts what
//! they are asked for: how many a second when as many as can be are asked for, and when a signature leaves when 50 a second
//! are. On SQLite, and on PostgreSQL where `LANDFALL_TEST_POSTGRES` names a server.
//!
//! Service, signer, node, door, database and callers share the processors of one machine.

pub(crate) mod bench;
pub(crate) mod door;
pub(crate) mod evm;
pub(crate) mod solana;

use crate::Size;
use crate::database::Place;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let raw = evm::raw(size).await?;
    println!("anvil alone takes {raw:.0} token transfers a second, of which it signs each");
    for place in Place::all() {
        place.with(async |url| evm::on(url, place.engine(), raw, size).await).await?;
    }
    for place in Place::all() {
        place.with(async |url| evm::with_open_ones(url, place.engine(), size).await).await?;
    }
    Ok(())
}
