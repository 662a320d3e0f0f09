//! Keys without a signer, as anybody makes them of a seed: BIP-39, BIP-32, SLIP-10 and ECDSA once more, by plain
//! arithmetic.
//!
//! None of it is written as for real money: it takes different times for different keys, and wipes nothing.

use std::num::NonZeroU32;

use landfall_chain::{Address, KeyPath, U256};
use landfall_signer::Words;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use ring::{hmac, pbkdf2};
use sha3::{Digest as _, Keccak256};

const ROUNDS: NonZeroU32 = NonZeroU32::new(2_048).unwrap();
const HARDENED: u32 = 1 << 31;
/// SLIP-44's numbers of Ether and SOL.
const EVM: u32 = 60;
const SOLANA: u32 = 501;

/// A point of secp256k1; `None` at infinity.
type Point = Option<(U256, U256)>;

/// Of secp256k1: its field, how many points it has, and the point that all others are multiples of.
const FIELD: U256 = U256::from_limbs([0xffff_fffe_ffff_fc2f, u64::MAX, u64::MAX, u64::MAX]);
const ORDER: U256 = U256::from_limbs([0xbfd2_5e8c_d036_4141, 0xbaae_dce6_af48_a03b, u64::MAX - 1, u64::MAX]);
const BASE: Point = Some((
    U256::from_limbs([0x59f2_815b_16f8_1798, 0x029b_fcdb_2dce_28d9, 0x55a0_6295_ce87_0b07, 0x79be_667e_f9dc_bbac]),
    U256::from_limbs([0x9c47_d08f_fb10_d4b8, 0xfd17_b448_a685_5419, 0x5da4_fbfc_0e11_08a8, 0x483a_da77_26a3_c465]),
));

/// The key of a path on EVM chains.
pub(crate) fn evm_key(seed: &Words, path: &KeyPath) -> U256 {
    let (key, code) = halves(b"Bitcoin seed", &seed_bytes(seed));
    let child = |(key, code): (U256, [u8; 32]), number: u32| {
        let parent = if number < HARDENED { compressed(key) } else { [&[0_u8][..], &bytes(key)].concat() };
        let (tweak, code) = halves(&code, &[&parent[..], &number.to_be_bytes()].concat());
        (U256::from_be_bytes(tweak).add_mod(key, ORDER), code)
    };
    let numbers = [44 | HARDENED, EVM | HARDENED, path.account | HARDENED, 0, path.index];
    numbers.into_iter().fold((U256::from_be_bytes(key), code), child).0
}

/// The key of a path on Solana.
pub(crate) fn solana_key(seed: &Words, path: &KeyPath) -> [u8; 32] {
    let child = |(key, code): ([u8; 32], [u8; 32]), number: u32| {
        halves(&code, &[&[0_u8][..], &key, &(number | HARDENED).to_be_bytes()].concat())
    };
    [44, SOLANA, path.account, path.index].into_iter().fold(halves(b"ed25519 seed", &seed_bytes(seed)), child).0
}

/// The address of a key on EVM chains.
pub(crate) fn evm_address(key: U256) -> Address {
    let (x, y) = point(key);
    let hash = Keccak256::digest([bytes(x), bytes(y)].as_flattened());
    Address::Evm(hash[12..].try_into().unwrap())
}

/// The address of a key on Solana.
pub(crate) fn solana_address(key: &[u8; 32]) -> Address {
    let pair = Ed25519KeyPair::from_seed_unchecked(key).unwrap();
    let public: &[u8] = pair.public_key().as_ref();
    Address::Solana(public.try_into().unwrap())
}

/// r, s and v of a key's signature; s is in the lower half.
pub(crate) fn sign(key: U256, digest: &[u8; 32]) -> [u8; 65] {
    let nonce = U256::from_be_slice(&Keccak256::digest([bytes(key), *digest].as_flattened())[..]) % ORDER;
    let (x, y) = point(nonce);
    let r = x % ORDER;
    let sum = (U256::from_be_bytes(*digest) % ORDER).add_mod(r.mul_mod(key, ORDER), ORDER);
    let s = nonce.inv_mod(ORDER).unwrap().mul_mod(sum, ORDER);
    let is_high = s > ORDER >> 1;
    let mut signature = [27 + u8::from(y.bit(0) != is_high); 65];
    signature[..32].copy_from_slice(&bytes(r));
    signature[32..64].copy_from_slice(&bytes(if is_high { ORDER - s } else { s }));
    signature
}

/// BIP-39, without a passphrase.
fn seed_bytes(seed: &Words) -> [u8; 64] {
    let mut bytes = [0; 64];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, ROUNDS, b"mnemonic", seed.phrase().as_bytes(), &mut bytes);
    bytes
}

/// A key, or what is added to one, and the code that goes with it.
fn halves(code: &[u8], data: &[u8]) -> ([u8; 32], [u8; 32]) {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA512, code), data);
    let both: &[u8] = tag.as_ref();
    (both[..32].try_into().unwrap(), both[32..].try_into().unwrap())
}

/// The public key: which of two points it is, and their x (SEC 1).
fn compressed(key: U256) -> Vec<u8> {
    let (x, y) = point(key);
    [&[2 + u8::from(y.bit(0))][..], &bytes(x)].concat()
}

fn bytes(number: U256) -> [u8; 32] {
    number.to_be_bytes()
}

/// The sum of so many [`BASE`].
fn point(times: U256) -> (U256, U256) {
    let twice_and = |sum: Point, bit: usize| {
        let twice = plus(sum, sum);
        if times.bit(bit) { plus(twice, BASE) } else { twice }
    };
    (0..256).rev().fold(None, twice_and).expect("no key is a multiple of the order")
}

fn plus(one: Point, other: Point) -> Point {
    let (Some((x1, y1)), Some((x2, y2))) = (one, other) else { return one.or(other) };
    if x1 == x2 && y1 != y2 {
        return None;
    }
    let slope = if x1 == x2 {
        U256::from(3).mul_mod(x1.mul_mod(x1, FIELD), FIELD).mul_mod(inverse(y1.add_mod(y1, FIELD)), FIELD)
    } else {
        minus(y2, y1).mul_mod(inverse(minus(x2, x1)), FIELD)
    };
    let x = minus(minus(slope.mul_mod(slope, FIELD), x1), x2);
    Some((x, minus(slope.mul_mod(minus(x1, x), FIELD), y1)))
}

fn minus(one: U256, other: U256) -> U256 {
    one.add_mod(FIELD - other, FIELD)
}

fn inverse(number: U256) -> U256 {
    number.inv_mod(FIELD).expect("a prime field, and not zero")
}
