//! Two calls that read the same values -> one.

use super::Call;

/// The place of two calls as one.
enum Place {
    /// That of the first.
    First,
    /// That of the second.
    Second,
}

/// Makes one call of two of `op`, a rotation of heads, by the same positions and attributes.
pub(super) fn rotations<C: Call>(mut calls: Vec<C>, op: &str) -> Vec<C> {
    let mut first = 0;
    while first < calls.len() {
        let Some((second, place)) = partner(&calls, first, op) else {
            first += 1;
            continue;
        };
        let (k, q) = (calls.remove(second), calls.remove(first));
        let inputs = vec![q.inputs()[0], k.inputs()[0], q.inputs()[1]];
        let at = match place {
            Place::First => first,
            Place::Second => second - 1,
        };
        calls.insert(at, q.with(k, inputs));
    }
    calls
}

/// The next rotation that the one at `first` may be joined with, and where.
fn partner<C: Call>(calls: &[C], first: usize, op: &str) -> Option<(usize, Place)> {
    let q = &calls[first];
    if q.op() != (op, 1) {
        return None;
    }
    let rotated = q.made()?;
    for (second, k) in calls.iter().enumerate().skip(first + 1) {
        let is_alike = k.op() == (op, 1) && k.attributes() == q.attributes();
        if !is_alike || k.inputs()[1..] != q.inputs()[1..] {
            continue;
        }
        let mut between = calls[first + 1..=second].iter();
        if !between.any(|call| call.inputs().contains(&rotated)) {
            return Some((second, Place::Second));
        }
        let mut before = calls[first..second].iter();
        if !before.any(|call| call.makes(k.inputs())) {
            return Some((second, Place::First));
        }
    }
    None
}
