//! Keccak-256 of many messages at once: the leaves and nodes of a block's tries, which are most of what proving costs.
//!
//! One message is hashed no faster than by others; four independent ones are, because every step of the permutation is
//! the same for all four and a processor's vectors do it in one. The steps are written for one message. The compiler
//! turns the loop over the four into vectors, once for each kind of processor; which one runs is chosen at run time.
//! Source: FIPS 202, 3.2, with the padding from before that standard, as Ethereum has it. Promises: the same hashes as
//! alloy's `keccak256`, on every processor; that one hashes a message alone.

use alloy::primitives::{B256, keccak256};
use multiversion::multiversion;

/// So many are hashed at once: one vector of AVX2. Eight gain nothing with AVX-512, and lose without it (measured).
const LANES: usize = 4;
/// The bytes of a state, of 200, that a message is added to.
const RATE: usize = 136;

/// The 25 words of each of the states.
type States = [[u64; LANES]; 25];

/// An expression for each of the 25 words, whose number is a constant. Written as loops, the compiler made vectors of
/// the 25 words and not of the four states: six times as slow as no vectors at all.
macro_rules! words {
    ($at:ident => $value:expr) => {
        words!($at => $value; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
    };
    ($at:ident => $value:expr; $($number:literal)*) => {
        [$({ const $at: usize = $number; $value }),*]
    };
}

/// The hashes of `messages`, in their order.
pub(crate) fn keccak256_of_each(messages: &[&[u8]]) -> Vec<B256> {
    let mut hashes = vec![B256::ZERO; messages.len()];
    let mut order: Vec<usize> = (0..messages.len()).collect();
    // Messages that need as many permutations go together: the shorter ones of a group wait for its longest.
    order.sort_by_key(|at| messages[*at].len() / RATE);
    for group in order.chunks(LANES) {
        if let [at] = *group {
            hashes[at] = keccak256(messages[at]);
            continue;
        }
        let mut together: [&[u8]; LANES] = [&[]; LANES];
        together.iter_mut().zip(group).for_each(|(message, at)| *message = messages[*at]);
        group.iter().zip(hashed(together)).for_each(|(at, hash)| hashes[*at] = hash);
    }
    hashes
}

fn hashed(messages: [&[u8]; LANES]) -> [B256; LANES] {
    let mut states: States = [[0; LANES]; 25];
    let mut hashes = [B256::ZERO; LANES];
    let lasts = messages.map(|message| message.len() / RATE);
    for block in 0..=lasts.into_iter().max().unwrap_or_default() {
        for (lane, message) in messages.iter().enumerate() {
            // `None` behind the message's end, not at it: the padding may need a block of its own.
            if let Some(rest) = message.get(block * RATE..) {
                absorb(&mut states, lane, rest);
            }
        }
        permute(&mut states);
        for (lane, hash) in hashes.iter_mut().enumerate().filter(|(lane, _)| lasts[*lane] == block) {
            for (bytes, word) in hash.chunks_exact_mut(8).zip(&states) {
                bytes.copy_from_slice(&word[lane].to_le_bytes());
            }
        }
    }
    hashes
}

/// Adds the next block of a message, of which `rest` is left.
fn absorb(states: &mut States, lane: usize, rest: &[u8]) {
    let mut padded = [0; RATE];
    let block = rest.first_chunk::<RATE>().unwrap_or_else(|| {
        padded[..rest.len()].copy_from_slice(rest);
        padded[rest.len()] = 1;
        padded[RATE - 1] |= 0x80;
        &padded
    });
    for (state, word) in states.iter_mut().zip(block.as_chunks::<8>().0) {
        state[lane] ^= u64::from_le_bytes(*word);
    }
}

/// Keccak-f of 1600 bits of each state, by the best vectors that the processor has.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn permute(states: &mut States) {
    rounds(states);
}

#[inline(always)]
fn rounds(states: &mut States) {
    for constant in ROUNDS {
        // The same for each: this is the loop that becomes vectors.
        #[expect(clippy::needless_range_loop, reason = "a lane is the inner index, of 25 words")]
        for lane in 0..LANES {
            let next = round(&words!(AT => states[AT][lane]), constant);
            words!(AT => states[AT][lane] = next[AT]);
        }
    }
}

/// One round of one state, whose word (x, y) stands at x + 5 y.
#[inline(always)]
fn round(state: &[u64; 25], constant: u64) -> [u64; 25] {
    let column = |x: usize| state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20];
    let columns = [column(0), column(1), column(2), column(3), column(4)];
    let parity = |x: usize| columns[(x + 4) % 5] ^ columns[(x + 1) % 5].rotate_left(1);
    let parities = [parity(0), parity(1), parity(2), parity(3), parity(4)];
    let moved = words!(TO => {
        const FROM: usize = (TO + 3 * (TO / 5)) % 5 + 5 * (TO % 5);
        (state[FROM] ^ parities[FROM % 5]).rotate_left(const { OFFSETS[FROM] })
    });
    let mut mixed = words!(AT => {
        const ROW: usize = AT - AT % 5;
        moved[AT] ^ (!moved[ROW + (AT + 1) % 5] & moved[ROW + (AT + 2) % 5])
    });
    mixed[0] ^= constant;
    mixed
}

/// By how many bits each word is rotated (FIPS 202, 3.2.2).
const OFFSETS: [u32; 25] =
    [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14];

/// What each round adds to the first word (FIPS 202, 3.2.5).
const ROUNDS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agree(messages: &[Vec<u8>]) {
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let expected: Vec<B256> = messages.iter().map(keccak256).collect();
        assert_eq!(
            keccak256_of_each(&messages),
            expected,
            "{:?}",
            messages.iter().map(|it| it.len()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn each_hash_is_alloys_at_every_length_of_a_message() {
        let message = |length: usize| (0..length).map(|at| u8::try_from((at * 31 + length) % 251).unwrap()).collect();
        for length in 0..=1_000 {
            // Alone; with equals; with others that need one block less and one more.
            for lengths in [vec![length], vec![length; 5], vec![length, length + RATE, length.saturating_sub(RATE), 0]]
            {
                agree(&lengths.into_iter().map(message).collect::<Vec<Vec<u8>>>());
            }
        }
        agree(&[]);
    }

    #[test]
    fn the_steps_are_the_same_on_a_processor_without_vectors() {
        let word = |number: usize| 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::try_from(number).unwrap());
        let mut states: States = std::array::from_fn(|at| std::array::from_fn(|lane| word(at * LANES + lane + 1)));
        let mut plain = states;
        permute(&mut states);
        rounds(&mut plain);
        assert_eq!(states, plain);
    }

    proptest! {
        #[test]
        fn each_hash_is_alloys_whatever_the_messages(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1_000), 0..40),
        ) {
            agree(&messages);
        }
    }
}
