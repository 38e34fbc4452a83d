//! Cases of `attention`, its gradients and `attention_cached`.

mod bounds;
mod shapes;

use espalier_interface::DType;
use espalier_interface::graph::Dim;

use super::{COMPUTE, fixed, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::draw::Draw;
use crate::ops::numbers::{integers, rounded};
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, SlotCache};
use shapes::Slots;

/// The checks.
pub const OPS: &[OpCheck] = &[
    OpCheck {
        name: "op.attention",
        asserts: "out and lse of packed sequences, shared heads, windows, caps",
        cases: attention,
    },
    OpCheck {
        name: "op.attention_backward",
        asserts: "dq, dk and dv from out and lse",
        cases: attention_backward,
    },
    OpCheck {
        name: "op.attention_cached",
        asserts: "k and v are appended to a cache and attended over",
        cases: attention_cached,
    },
];

/// `attention`.
fn attention(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for shape in shapes::all(draw) {
            let (mask, cu_seqlens) = (shape.mask(), shape.cu_seqlens());
            let [q, k, v] = shape.operands(draw, dtype);
            let (out, lse) = oracle::attention(&mask, [&q, &k, &v], &cu_seqlens);
            let (out_bounds, lse_bounds) =
                bounds::forward((dtype, &mask), [&q, &k, &v], &cu_seqlens);
            let [wide, narrow] = shape.widths().map(rows);
            let case = shape.case("attention", dtype).input(&wide, dtype, &q);
            let case = case.input(&narrow, dtype, &k).input(&narrow, dtype, &v);
            let case = case.input(&[Dim::Boundaries], DType::I32, &integers(&cu_seqlens));
            let case = case.output(&wide, dtype, Near::new(out, out_bounds));
            let lse = Near::new(lse, lse_bounds);
            cases.push(case.output(&rows(mask.heads), DType::F32, lse));
        }
    }
    cases
}

/// `attention_backward`, on the rounded results of the oracle.
fn attention_backward(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for shape in shapes::all(draw) {
            let (mask, cu_seqlens) = (shape.mask(), shape.cu_seqlens());
            let [q, k, v] = shape.operands(draw, dtype);
            let (out, lse) = oracle::attention(&mask, [&q, &k, &v], &cu_seqlens);
            let (out, lse) = (rounded(dtype, &out), rounded(DType::F32, &lse));
            let dout = draw.numbers(q.len(), dtype, 4);
            let operands = [&dout[..], &q, &k, &v, &out, &lse];
            let values = oracle::attention_backward(&mask, operands, &cu_seqlens);
            let bounds = bounds::backward((dtype, &mask), operands, &cu_seqlens);
            let [wide, narrow] = shape.widths().map(rows);
            let mut case = shape.case("attention_backward", dtype);
            for (shape, numbers) in [&wide, &wide, &narrow, &narrow, &wide].iter().zip(operands) {
                case = case.input(&shape[..], dtype, numbers);
            }
            case = case.input(&rows(mask.heads), DType::F32, &lse);
            case = case.input(&[Dim::Boundaries], DType::I32, &integers(&cu_seqlens));
            let outputs = values.into_iter().zip(bounds);
            for (shape, (values, bounds)) in [&wide, &narrow, &narrow].iter().zip(outputs) {
                case = case.output(&shape[..], dtype, Near::new(values, bounds));
            }
            cases.push(case);
        }
    }
    cases
}

/// `attention_cached`: prompts and single tokens, in slots out of order, after what each slot
/// holds. Places that nothing was written to hold NaN, and stay as they are.
fn attention_cached(draw: &Draw) -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in draw.each(&COMPUTE) {
        for shape in shapes::causal(draw) {
            let (mask, cu_seqlens) = (shape.mask(), shape.cu_seqlens());
            let operands = shape.operands(draw, dtype);
            let [q, k, v] = [0, 1, 2].map(|index| &operands[index][..]);
            let Slots {
                count,
                capacity,
                held,
                slot,
            } = shape.slots(draw);
            let (mut positions, mut sequences) = (Vec::new(), Vec::new());
            for (sequence, &length) in shape.lengths.iter().enumerate() {
                positions.extend((0..length).map(|i| (held[sequence] + i) as i32));
                sequences.extend((0..length).map(|_| slot[sequence] as i32));
            }
            let width = shape.widths()[1];
            let empty = vec![f64::NAN; count * capacity * width];
            let mut before = SlotCache {
                keys: empty.clone(),
                values: empty,
                capacity,
            };
            for sequence in 0..shape.lengths.len() {
                let at = slot[sequence] * capacity * width;
                let n = held[sequence] * width;
                let stream = draw.or(5, |_| 5 + 2 * sequence as u64);
                before.keys[at..at + n].copy_from_slice(&draw.numbers(n, dtype, stream));
                before.values[at..at + n].copy_from_slice(&draw.numbers(n, dtype, stream + 1));
            }
            let places = [&positions[..], &sequences[..]];
            let attended =
                oracle::attention_cached(&mask, [q, k, v], &cu_seqlens, places, before.clone());
            let (out, after) = attended;
            let bounds = bounds::cached((dtype, &mask), q, &cu_seqlens, places, &after);
            let [wide, narrow] = shape.widths().map(rows);
            let case = shape.case("attention_cached", dtype);
            let case = case.input(&wide, dtype, q);
            let case = case.input(&narrow, dtype, k).input(&narrow, dtype, v);
            let case = case.input(&[Dim::Boundaries], DType::I32, &integers(&cu_seqlens));
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&positions));
            let case = case.input(&[Dim::Tokens], DType::I32, &integers(&sequences));
            let case = case.output(&wide, dtype, Near::new(out, bounds));
            let cache = fixed([count, capacity, width]);
            let case = case.updated(&cache, dtype, &before.keys, Near::exact(after.keys));
            cases.push(case.updated(&cache, dtype, &before.values, Near::exact(after.values)));
        }
    }
    cases
}
