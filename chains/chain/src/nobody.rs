//! Addresses that are nobody's: nobody can sign for them, so what is sent there is lost, and no account may have one.
//!
//! They are facts of the families and of their networks, and the same for every caller. Deliberately not here:
//! contracts that somebody deployed, which may pay out what they hold.

use std::sync::LazyLock;

use crate::{Address, Chain};

/// Addresses from the first to the last, both inclusive, and what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nobodys {
    /// The lowest of them.
    pub first: Address,
    /// The highest of them; the same where it is a single one.
    pub last: Address,
    /// The words that follow "is".
    pub what: &'static str,
}

const PRECOMPILE: &str = "a precompile";
/// EIP-2929's to EIP-2537's are 0x01 to 0x11; EIP-7951, P256VERIFY, is 0x100.
const EVM: [Nobodys; 3] = [low(0, 0, "the zero address"), low(0x01, 0x11, PRECOMPILE), low(0x100, 0x100, PRECOMPILE)];
/// The predeploys: 0x4200..0000 to 0x4200..07ff (specs.optimism.io, protocol/predeploys).
const OP_STACK: [Nobodys; 1] = [Nobodys {
    first: Address::Evm(number(0x42, 0)),
    last: Address::Evm(number(0x42, 0x07ff)),
    what: "a predeploy of the OP stack",
}];
/// The state receiver, and the contract of the native currency (bor, builtin/files/genesis).
const POLYGON: [Nobodys; 2] =
    [low(0x1001, 0x1001, "a system contract of Polygon"), low(0x1010, 0x1010, "a system contract of Polygon")];

const TOKEN_PROGRAM: &str = "a token program";
const SYSVAR: &str = "a sysvar";
const NATIVE_PROGRAM: &str = "a native program";
/// As solana-sdk-ids 3.1 has them, and the programs of spl-token, spl-token-2022 and spl-associated-token-account.
const SOLANA: [(&str, &str); 35] = [
    ("11111111111111111111111111111111", "the system program"),
    ("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA", TOKEN_PROGRAM),
    ("TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb", TOKEN_PROGRAM),
    ("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL", TOKEN_PROGRAM),
    ("Sysvar1111111111111111111111111111111111111", SYSVAR),
    ("SysvarC1ock11111111111111111111111111111111", SYSVAR),
    ("SysvarEpochRewards1111111111111111111111111", SYSVAR),
    ("SysvarEpochSchedu1e111111111111111111111111", SYSVAR),
    ("SysvarFees111111111111111111111111111111111", SYSVAR),
    ("Sysvar1nstructions1111111111111111111111111", SYSVAR),
    ("SysvarLastRestartS1ot1111111111111111111111", SYSVAR),
    ("SysvarRecentB1ockHashes11111111111111111111", SYSVAR),
    ("SysvarRent111111111111111111111111111111111", SYSVAR),
    ("SysvarRewards111111111111111111111111111111", SYSVAR),
    ("SysvarS1otHashes111111111111111111111111111", SYSVAR),
    ("SysvarS1otHistory11111111111111111111111111", SYSVAR),
    ("SysvarStakeHistory1111111111111111111111111", SYSVAR),
    ("AddressLookupTab1e1111111111111111111111111", NATIVE_PROGRAM),
    ("BPFLoader1111111111111111111111111111111111", NATIVE_PROGRAM),
    ("BPFLoader2111111111111111111111111111111111", NATIVE_PROGRAM),
    ("BPFLoaderUpgradeab1e11111111111111111111111", NATIVE_PROGRAM),
    ("LoaderV411111111111111111111111111111111111", NATIVE_PROGRAM),
    ("NativeLoader1111111111111111111111111111111", NATIVE_PROGRAM),
    ("ComputeBudget111111111111111111111111111111", NATIVE_PROGRAM),
    ("Config1111111111111111111111111111111111111", NATIVE_PROGRAM),
    ("Ed25519SigVerify111111111111111111111111111", NATIVE_PROGRAM),
    ("Feature111111111111111111111111111111111111", NATIVE_PROGRAM),
    ("KeccakSecp256k11111111111111111111111111111", NATIVE_PROGRAM),
    ("Secp256r1SigVerify1111111111111111111111111", NATIVE_PROGRAM),
    ("Stake11111111111111111111111111111111111111", NATIVE_PROGRAM),
    ("StakeConfig11111111111111111111111111111111", NATIVE_PROGRAM),
    ("Vote111111111111111111111111111111111111111", NATIVE_PROGRAM),
    ("ZkE1Gama1Proof11111111111111111111111111111", NATIVE_PROGRAM),
    ("ZkTokenProof1111111111111111111111111111111", NATIVE_PROGRAM),
    ("1nc1nerator11111111111111111111111111111111", "the incinerator, which burns what it holds"),
];

static OF_SOLANA: LazyLock<Vec<Nobodys>> = LazyLock::new(|| {
    let single = |(text, what): &(&str, &'static str)| {
        let address = Address::parse(crate::Family::Solana, text).expect("a test reads the whole list");
        Nobodys { first: address, last: address, what }
    };
    SOLANA.iter().map(single).collect()
});

/// The addresses of `chain` that are nobody's.
pub fn nobodys(chain: Chain) -> impl Iterator<Item = &'static Nobodys> {
    let lists: [&'static [Nobodys]; 2] = match chain {
        Chain::EthereumMainnet | Chain::EthereumTestnet => [&EVM, &[]],
        Chain::OptimismMainnet | Chain::OptimismSepolia | Chain::BaseMainnet | Chain::BaseSepolia => [&EVM, &OP_STACK],
        Chain::PolygonMainnet | Chain::PolygonAmoy => [&EVM, &POLYGON],
        Chain::SolanaMainnet | Chain::SolanaDevnet => [OF_SOLANA.as_slice(), &[]],
    };
    lists.into_iter().flatten()
}

/// What `address` is on `chain`, where it is nobody's.
pub fn what_of_nobody(chain: Chain, address: &Address) -> Option<&'static str> {
    nobodys(chain).find(|it| it.first <= *address && *address <= it.last).map(|it| it.what)
}

const fn low(first: u16, last: u16, what: &'static str) -> Nobodys {
    Nobodys { first: Address::Evm(number(0, first)), last: Address::Evm(number(0, last)), what }
}

/// An address that begins and ends so, with zeros between.
const fn number(first_byte: u8, last_bytes: u16) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[0] = first_byte;
    [bytes[18], bytes[19]] = last_bytes.to_be_bytes();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(chain: Chain, text: &str) -> Option<&'static str> {
        what_of_nobody(chain, &Address::parse(chain.family(), text).expect("an address"))
    }

    #[test]
    fn each_family_and_stack_has_its_own_and_next_to_them_may_be_somebody() {
        let low = |digits: &str| format!("0x{digits:0>40}");
        let predeploy = |digits: &str| format!("0x42{digits:0>38}");
        for chain in Chain::ALL.into_iter().filter(|chain| chain.family() == crate::Family::Evm) {
            assert_eq!(of(chain, &low("0")), Some("the zero address"));
            for nobodys in ["1", "9", "a", "11", "100"] {
                assert_eq!(of(chain, &low(nobodys)), Some("a precompile"), "{chain} {nobodys}");
            }
            for somebodys in ["12", "ff", "101", "1000", "1002", "100f", "1011"] {
                assert_eq!(of(chain, &low(somebodys)), None, "{chain} {somebodys}");
            }
            let is_op_stack = ["BASE", "OPTIMISM"].iter().any(|name| chain.name().starts_with(name));
            for digits in ["0", "6", "7ff"] {
                assert_eq!(of(chain, &predeploy(digits)).is_some(), is_op_stack, "{chain} {digits}");
            }
            assert_eq!(of(chain, &predeploy("800")), None);
            let is_polygon = chain.name().starts_with("POLYGON");
            for digits in ["1001", "1010"] {
                assert_eq!(of(chain, &low(digits)).is_some(), is_polygon, "{chain} {digits}");
            }
        }
    }

    #[test]
    fn the_list_of_solana_is_read_and_nothing_stands_in_it_twice() {
        for chain in [Chain::SolanaMainnet, Chain::SolanaDevnet] {
            let mut all: Vec<Address> = nobodys(chain).map(|it| it.first).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), SOLANA.len());
            for (text, what) in SOLANA {
                assert_eq!(of(chain, text), Some(what));
            }
            assert_eq!(of(chain, "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin"), None);
        }
    }
}
