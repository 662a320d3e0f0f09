//! Dice, and where they lead in what a node answers.

use serde_json::Value;

use super::corpus::Answer;

/// Dice that fall the same for the same number (splitmix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(number: u64) -> Dice {
        Dice(number)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 up to, but not, `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.roll() % u64::try_from(count).unwrap()).unwrap()
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn of<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }
}

pub(super) fn on_node(dice: &mut Dice, answers: &mut [Answer], change: fn(&mut Dice, &mut Value)) {
    let node = any_node(dice, answers);
    change(dice, node);
}

pub(super) fn on_container(dice: &mut Dice, answers: &mut [Answer], change: fn(&mut Dice, &mut Value)) {
    let container = any_container(dice, answers);
    change(dice, container);
}

/// A node of one of the answers, seldom one with nodes below it.
pub(super) fn any_node<'v>(dice: &mut Dice, answers: &'v mut [Answer]) -> &'v mut Value {
    let index = dice.below(answers.len());
    node(dice, &mut answers[index].1)
}

fn node<'v>(dice: &mut Dice, value: &'v mut Value) -> &'v mut Value {
    let (count, full) = (children(value), full_children(value));
    if count == 0 || dice.one_in(12) {
        return value;
    }
    let index = if !full.is_empty() && dice.one_in(2) { *dice.of(&full) } else { dice.below(count) };
    node(dice, child(value, index))
}

/// A node that has nodes below it, where there is one.
pub(super) fn any_container<'v>(dice: &mut Dice, answers: &'v mut [Answer]) -> &'v mut Value {
    let index = dice.below(answers.len());
    container(dice, &mut answers[index].1)
}

fn container<'v>(dice: &mut Dice, value: &'v mut Value) -> &'v mut Value {
    let full = full_children(value);
    if full.is_empty() || dice.one_in(3) {
        return value;
    }
    let index = *dice.of(&full);
    container(dice, child(value, index))
}

fn children(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

fn child(value: &mut Value, index: usize) -> &mut Value {
    match value {
        Value::Object(fields) => fields.values_mut().nth(index).unwrap(),
        Value::Array(items) => &mut items[index],
        _ => panic!("a leaf has no children"),
    }
}

/// Which children have children.
fn full_children(value: &Value) -> Vec<usize> {
    let is_full = |(index, child): (usize, &Value)| (children(child) > 0).then_some(index);
    match value {
        Value::Object(fields) => (0..).zip(fields.values()).filter_map(is_full).collect(),
        Value::Array(items) => (0..).zip(items).filter_map(is_full).collect(),
        _ => Vec::new(),
    }
}
