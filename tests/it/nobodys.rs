//! Addresses that are nobody's: refused by each way in (that of the API: `api_accounts`).

use landfall_chain::{Address, Chain};

use crate::cli::{CONFIG, Desk};

const ZERO: &str = "0x0000000000000000000000000000000000000000";
/// Somebody's.
const OTHER: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

/// Chains, address, and what is told of it.
fn cases() -> [(&'static str, &'static str, &'static str); 8] {
    [
        ("ETHEREUM_TESTNET", ZERO, "the zero address"),
        ("ETHEREUM_MAINNET", "0x0000000000000000000000000000000000000011", "a precompile"),
        ("POLYGON_MAINNET", "0x0000000000000000000000000000000000000100", "a precompile"),
        ("POLYGON_AMOY", "0x0000000000000000000000000000000000001010", "a system contract of Polygon"),
        ("BASE_MAINNET", "0x42000000000000000000000000000000000007ff", "a predeploy of the OP stack"),
        ("SOLANA_MAINNET", "11111111111111111111111111111111", "the system program"),
        ("SOLANA_MAINNET", "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA", "a token program"),
        ("SOLANA_DEVNET", "SysvarC1ock11111111111111111111111111111111", "a sysvar"),
    ]
}

#[test]
fn an_address_that_is_nobodys_is_refused_by_account_add_and_by_import() {
    let desk = Desk::new(CONFIG);
    desk.ok(&["migrate"]);
    for (chain, address, what) in cases() {
        let shown = Address::parse(chain.parse::<Chain>().unwrap().family(), address).unwrap();
        let expected = format!("{shown} on {chain} is {what}: nobody can spend what is sent there");
        let spec = format!("{chain}={address}");
        let refused = desk.refused(&["account", "add", "--account", "a", "--type", "OMNIBUS", "--address", &spec]);
        assert_eq!(refused, format!("landfall: {expected}"));

        let rows = format!(
            "account_id,type,chains,address\nb,SEGREGATED,ETHEREUM_TESTNET,{OTHER}\nb,SEGREGATED,{chain},{address}\n"
        );
        std::fs::write(desk.path("accounts.csv"), rows).unwrap();
        let refused = desk.refused(&["account", "import", "accounts.csv"]);
        assert_eq!(refused, format!("landfall: accounts.csv: nothing was imported: line 3: {expected}"));
        assert_eq!(desk.ok(&["account", "list"]), "");
    }
    // What is reserved on one chain may be somebody's on another.
    let spec = "ETHEREUM_MAINNET=0x4200000000000000000000000000000000000006";
    desk.ok(&["account", "add", "--account", "a", "--type", "OMNIBUS", "--address", spec]);
}
