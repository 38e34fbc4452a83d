//! Cases of `attention`, its gradients and `attention_cached`.

mod bounds;

use espalier_interface::DType;
use espalier_interface::graph::Dim;
use serde_json::json;

use super::{COMPUTE, fixed, rows};
use crate::ops::case::{Near, OpCase};
use crate::ops::numbers::{drawn, integers, rounded};
use crate::ops::op_check::OpCheck;
use crate::ops::oracle::{self, Mask, SlotCache};

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

/// An attention and the lengths of its sequences.
struct Shape {
    /// `[H, J, K]`.
    heads: [usize; 3],
    lengths: &'static [usize],
    window: Option<usize>,
    softcap: Option<f64>,
    causal: bool,
}

const PLAIN: Shape = Shape {
    heads: [1, 1, 1],
    lengths: &[1],
    window: None,
    softcap: None,
    causal: true,
};

/// Sequences of none, one, and more than 128 tokens; heads of odd widths, shared in pairs and by
/// three. Windows of one, inside and beyond a sequence; caps; later tokens in sight.
const SHAPES: [Shape; 10] = [
    Shape {
        lengths: &[],
        heads: [2, 1, 4],
        ..PLAIN
    },
    PLAIN,
    Shape {
        lengths: &[3, 0, 14],
        heads: [3, 1, 5],
        ..PLAIN
    },
    Shape {
        lengths: &[0, 65, 1],
        heads: [4, 2, 16],
        ..PLAIN
    },
    Shape {
        lengths: &[17, 33],
        heads: [2, 2, 33],
        window: Some(7),
        ..PLAIN
    },
    Shape {
        lengths: &[3, 17],
        heads: [6, 2, 8],
        window: Some(1),
        ..PLAIN
    },
    Shape {
        lengths: &[5, 263, 2],
        heads: [2, 1, 17],
        window: Some(130),
        ..PLAIN
    },
    Shape {
        lengths: &[141],
        heads: [2, 1, 64],
        softcap: Some(2.5),
        ..PLAIN
    },
    Shape {
        lengths: &[9, 31],
        heads: [4, 1, 7],
        window: Some(20),
        softcap: Some(1.0),
        ..PLAIN
    },
    Shape {
        lengths: &[5, 1, 130],
        heads: [2, 1, 9],
        causal: false,
        ..PLAIN
    },
];

impl Shape {
    fn mask(&self) -> Mask {
        let [heads, kv_heads, head_dim] = self.heads;
        Mask {
            heads,
            kv_heads,
            head_dim,
            scale: 1.3 / (head_dim as f64).sqrt(),
            causal: self.causal,
            window: self.window,
            softcap: self.softcap,
        }
    }

    fn cu_seqlens(&self) -> Vec<i32> {
        let ends = self.lengths.iter().scan(0, |end, length| {
            *end += *length as i32;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Elements of a token's queries, and of its keys.
    fn widths(&self) -> [usize; 2] {
        let [heads, kv_heads, head_dim] = self.heads;
        [heads * head_dim, kv_heads * head_dim]
    }

    fn name(&self, dtype: DType) -> String {
        let [heads, kv_heads, head_dim] = self.heads;
        let mut name = format!(
            "{dtype}, sequences of {:?}, H {heads}, J {kv_heads}, K {head_dim}",
            self.lengths
        );
        if let Some(window) = self.window {
            name += &format!(", window {window}");
        }
        if let Some(softcap) = self.softcap {
            name += &format!(", softcap {softcap}");
        }
        if !self.causal {
            name += ", not causal";
        }
        name
    }

    fn case(&self, op: &str, dtype: DType) -> OpCase {
        let mask = self.mask();
        let case = OpCase::new(op, self.tokens(), self.name(dtype)).sequences(self.lengths.len());
        let case = case.attribute("heads", mask.heads);
        let case = case.attribute("kv_heads", mask.kv_heads);
        let case = case.attribute("head_dim", mask.head_dim);
        let case = case.attribute("scale", mask.scale);
        let case = case.attribute("causal", mask.causal);
        let case = case.attribute("window", json!(mask.window));
        case.attribute("softcap", json!(mask.softcap))
    }

    /// q, k and v.
    fn operands(&self, dtype: DType) -> [Vec<f64>; 3] {
        let [q, kv] = self.widths().map(|width| self.tokens() * width);
        [drawn(q, dtype, 1), drawn(kv, dtype, 2), drawn(kv, dtype, 3)]
    }
}

/// `attention`.
fn attention() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for shape in &SHAPES {
            let (mask, cu_seqlens) = (shape.mask(), shape.cu_seqlens());
            let [q, k, v] = shape.operands(dtype);
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
fn attention_backward() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for shape in &SHAPES {
            let (mask, cu_seqlens) = (shape.mask(), shape.cu_seqlens());
            let [q, k, v] = shape.operands(dtype);
            let (out, lse) = oracle::attention(&mask, [&q, &k, &v], &cu_seqlens);
            let (out, lse) = (rounded(dtype, &out), rounded(DType::F32, &lse));
            let dout = drawn(q.len(), dtype, 4);
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
fn attention_cached() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in COMPUTE {
        for shape in SHAPES.iter().filter(|shape| shape.causal) {
            let (mask, cu_seqlens) = (shape.mask(), shape.cu_seqlens());
            let operands = shape.operands(dtype);
            let [q, k, v] = [0, 1, 2].map(|index| &operands[index][..]);
            let (slots, capacity) = (shape.lengths.len() + 2, 300);
            let held = |sequence: usize| [0, 37, 7][sequence % 3];
            let slot = |sequence: usize| slots - 1 - sequence;
            let (mut positions, mut sequences) = (Vec::new(), Vec::new());
            for (sequence, &length) in shape.lengths.iter().enumerate() {
                positions.extend((0..length).map(|i| (held(sequence) + i) as i32));
                sequences.extend((0..length).map(|_| slot(sequence) as i32));
            }
            let width = shape.widths()[1];
            let empty = vec![f64::NAN; slots * capacity * width];
            let mut before = SlotCache {
                keys: empty.clone(),
                values: empty,
                capacity,
            };
            for sequence in 0..shape.lengths.len() {
                let at = slot(sequence) * capacity * width;
                let n = held(sequence) * width;
                before.keys[at..at + n].copy_from_slice(&drawn(n, dtype, 5));
                before.values[at..at + n].copy_from_slice(&drawn(n, dtype, 6));
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
            let cache = fixed([slots, capacity, width]);
            let case = case.updated(&cache, dtype, &before.keys, Near::exact(after.keys));
            cases.push(case.updated(&cache, dtype, &before.values, Near::exact(after.values)));
        }
    }
    cases
}
