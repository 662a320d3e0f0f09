//! How many compute units a transaction may use, and what one of them costs: pure.

use solana_sdk::instruction::Instruction;
use solana_sdk::pubkey::Pubkey;

/// `ComputeBudget111111111111111111111111111111`
const COMPUTE_BUDGET: Pubkey = Pubkey::new_from_array([
    3, 6, 70, 111, 229, 33, 23, 50, 255, 236, 173, 186, 114, 195, 155, 231, 188, 140, 229, 187, 197, 247, 18, 107, 44,
    67, 155, 58, 64, 0, 0, 0,
]);
/// `ComputeBudgetInstruction::SetComputeUnitLimit` and `SetComputeUnitPrice`.
const SET_LIMIT: u8 = 2;
const SET_PRICE: u8 = 3;
/// No transaction may use more (agave: `MAX_COMPUTE_UNIT_LIMIT`).
pub(super) const LIMIT_MAX: u32 = 1_400_000;
/// Beside a tenth of what a try used, so much is left: accounts may stand otherwise when it lands.
const LIMIT_MORE: u64 = 300;
/// Of what others paid lately for the same accounts, so many percent paid less.
const PRICE_PERCENTILE: usize = 75;

/// The instructions that set limit and price.
pub(super) fn budget(limit: u32, price: u64) -> [Instruction; 2] {
    let set = |kind: u8, value: &[u8]| Instruction {
        program_id: COMPUTE_BUDGET,
        accounts: Vec::new(),
        data: [&[kind], value].concat(),
    };
    [set(SET_LIMIT, &limit.to_le_bytes()), set(SET_PRICE, &price.to_le_bytes())]
}

/// The limit of a transaction that used so many units when it was tried.
pub(super) fn limit(used: u64) -> u32 {
    let limit = used.saturating_add(used.div_ceil(10)).saturating_add(LIMIT_MORE);
    u32::try_from(limit).unwrap_or(LIMIT_MAX).min(LIMIT_MAX)
}

/// What a unit costs, by what was paid in recent blocks; nothing where nobody paid.
pub(super) fn price(mut paid: Vec<u64>) -> u64 {
    paid.sort_unstable();
    paid.get(paid.len() * PRICE_PERCENTILE / 100).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_data_are_those_of_solana() {
        assert_eq!(COMPUTE_BUDGET.to_string(), "ComputeBudget111111111111111111111111111111");
        let [limit, price] = budget(0x01_0203, 0x04_0506);
        assert_eq!((limit.data, price.data), (vec![2, 3, 2, 1, 0], vec![3, 6, 5, 4, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn the_limit_is_a_tenth_and_some_more_than_was_used() {
        let cases = [(0, 300), (1, 302), (150, 465), (15_130, 16_943), (1_400_000, LIMIT_MAX), (u64::MAX, LIMIT_MAX)];
        for (used, expected) in cases {
            assert_eq!(limit(used), expected, "{used}");
        }
    }

    #[test]
    fn the_price_is_what_three_of_four_paid_less_than() {
        assert_eq!(price(Vec::new()), 0);
        assert_eq!(price(vec![7]), 7);
        assert_eq!(price(vec![4, 1, 3, 2]), 4);
        assert_eq!(price((0..100).rev().collect()), 75);
    }
}
