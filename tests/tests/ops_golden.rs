//! The oracle of the kit of ops against torch's own values in f64.

mod golden_ops;

use espalier_conformance::ops::elementwise;
use espalier_conformance::ops::nearest;
use espalier_conformance::ops::oracle::{self, Mask, Matrix, Rotation};
use espalier_interface::DType;
use espalier_interface::op::EmbeddingLayout::{ByColumn, ByRow};
use espalier_interface::op::GeluForm;

use golden_ops::{CLOSE, GoldenCase, GoldenOp, golden};

#[test]
fn linears() {
    for case in GoldenOp::new(&golden(), "linear").cases() {
        let [x, weight, bias, dy] = ["x", "weight", "bias", "dy"].map(|name| case.get(name));
        let size = [bias.len(), weight.len() / bias.len()];
        case.check("y", &oracle::linear(x, weight, Some(bias), size));
        case.check("plain", &oracle::linear(x, weight, None, size));
        case.check("dx", &oracle::linear_input_backward(dy, weight, size));
        case.check("dweight", &oracle::linear_weight_backward(dy, x, size));
        case.check("dbias", &oracle::bias_backward(dy, size[0]));
    }
}

#[test]
fn norms() {
    for case in GoldenOp::new(&golden(), "rms_norm").cases() {
        let [x, weight, dy] = ["x", "weight", "dy"].map(|name| case.get(name));
        let (eps, group) = (1e-5, weight.len());
        case.check("y", &oracle::rms_norm(x, weight, eps, |x| x));
        case.check("dx", &oracle::rms_norm_backward(dy, x, weight, eps));
        let dweight = oracle::rms_norm_weight_backward(dy, x, group, eps, |x| x);
        case.check("dweight", &dweight);
    }
}

#[test]
fn layer_norms_and_gelus() {
    let golden = golden();
    for case in GoldenOp::new(&golden, "layer_norm").cases() {
        let [x, weight, bias, dy] = ["x", "weight", "bias", "dy"].map(|name| case.get(name));
        let (eps, width) = (1e-5, weight.len());
        case.check("y", &oracle::layer_norm(x, weight, Some(bias), eps));
        case.check("plain", &oracle::layer_norm(x, weight, None, eps));
        case.check("dx", &oracle::layer_norm_backward(dy, x, weight, eps));
        let dweight = oracle::layer_norm_weight_backward(dy, x, width, eps);
        case.check("dweight", &dweight);
    }
    let cases = GoldenOp::new(&golden, "gelu").cases();
    assert_eq!(cases.len(), GeluForm::ALL.len());
    for case in cases {
        let mut forms = GeluForm::ALL.into_iter();
        let form = forms.find(|form| case.prefix.ends_with(form.name()));
        let (form, [x, dy]) = (
            form.expect("a form"),
            ["x", "dy"].map(|name| case.get(name)),
        );
        case.check("y", &oracle::gelu(form, x));
        case.check("dx", &oracle::gelu_backward(form, dy, x));
    }
}

#[test]
fn ropes() {
    for case in GoldenOp::new(&golden(), "rope").cases() {
        let positions = case.integers("positions");
        let inv_freq = case.get("inv_freq").to_vec();
        let rotation = Rotation {
            head_dim: 2 * inv_freq.len(),
            inv_freq,
            scaling: case.get("scaling")[0],
        };
        case.check("y", &oracle::rope(case.get("x"), &positions, &rotation));
        let dx = oracle::rope_backward(case.get("dy"), &positions, &rotation);
        case.check("dx", &dx);
    }
}

#[test]
fn attentions() {
    for case in GoldenOp::new(&golden(), "attention").cases() {
        let shape = case.integers("shape");
        let [heads, kv_heads, head_dim] = [0, 1, 2].map(|at| shape[at] as usize);
        let factors = case.get("factors");
        let mask = Mask {
            heads,
            kv_heads,
            head_dim,
            scale: factors[0],
            causal: shape[3] == 1,
            window: (shape[4] > 0).then_some(shape[4] as usize),
            softcap: (factors[1] > 0.0).then_some(factors[1]),
        };
        let mut cu_seqlens = vec![0];
        for length in case.integers("lengths") {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + length);
        }
        let operands = ["dout", "q", "k", "v", "out", "lse"].map(|name| case.get(name));
        let [_, q, k, v, _, _] = operands;
        let (out, lse) = oracle::attention(&mask, [q, k, v], &cu_seqlens);
        case.check("out", &out);
        case.check("lse", &lse);
        let [dq, dk, dv] = oracle::attention_backward(&mask, operands, &cu_seqlens);
        case.check("dq", &dq);
        case.check("dk", &dk);
        case.check("dv", &dv);
        if mask.causal {
            cached(&case, &mask, [q, k, v], &cu_seqlens);
        }
    }
}

/// Sequences whose tokens come in two launches, over a cache, attend as in one.
fn cached(case: &GoldenCase<'_>, mask: &Mask, operands: [&[f64]; 3], cu_seqlens: &[i32]) {
    let widths = [mask.heads, mask.kv_heads, mask.kv_heads].map(|n| n * mask.head_dim);
    let out = case.get("out");
    for bounds in cu_seqlens.windows(2).filter(|bounds| bounds[0] < bounds[1]) {
        let (begin, end) = (bounds[0] as usize, bounds[1] as usize);
        let middle = begin.midpoint(end);
        let room = vec![f64::NAN; 2 * 16 * widths[1]];
        let mut cache = oracle::SlotCache {
            keys: room.clone(),
            values: room,
            capacity: 16,
        };
        for part in [begin..middle, middle..end] {
            let n = part.len() as i32;
            let mine = |index: usize| {
                &operands[index][part.start * widths[index]..part.end * widths[index]]
            };
            let positions: Vec<i32> = (0..n).map(|i| i + (part.start - begin) as i32).collect();
            let slots = vec![1; part.len()];
            let places = [&positions[..], &slots[..]];
            let operands = [mine(0), mine(1), mine(2)];
            let made = oracle::attention_cached(mask, operands, &[0, n], places, cache);
            cache = made.1;
            let expected = &out[part.start * widths[0]..part.end * widths[0]];
            for (found, expected) in made.0.iter().zip(expected) {
                assert!((found - expected).abs() < 10.0 * CLOSE, "{}", case.prefix);
            }
        }
    }
}

#[test]
fn elementwise() {
    let golden = golden();
    for case in GoldenOp::new(&golden, "add").cases() {
        let alpha = case.get("alpha")[0];
        case.check("y", &oracle::add(case.get("a"), case.get("b"), alpha));
    }
    for case in GoldenOp::new(&golden, "mul").cases() {
        case.check("y", &oracle::mul(case.get("a"), case.get("b")));
    }
    for case in GoldenOp::new(&golden, "div").cases() {
        case.check("y", &oracle::div(case.get("a"), case.get("b")));
    }
    for case in GoldenOp::new(&golden, "scale_by").cases() {
        let [x, factors, dy] = ["x", "factors", "dy"].map(|name| case.get(name));
        case.check("y", &oracle::scale_channels(x, factors));
        case.check("dx", &oracle::scale_channels(dy, factors));
        let dfactors = oracle::scale_channels_weight_backward(dy, x, factors.len());
        case.check("dfactors", &dfactors);
    }
    for case in GoldenOp::new(&golden, "scale").cases() {
        case.check("y", &oracle::scale(case.get("a"), case.get("alpha")[0]));
    }
    for case in GoldenOp::new(&golden, "scale_channels").cases() {
        let [x, weight, dy] = ["x", "weight", "dy"].map(|name| case.get(name));
        case.check("y", &oracle::scale_channels(x, weight));
        case.check("dx", &oracle::scale_channels(dy, weight));
        let dweight = oracle::scale_channels_weight_backward(dy, x, weight.len());
        case.check("dweight", &dweight);
    }
    for case in GoldenOp::new(&golden, "swiglu").cases() {
        let [gate, up, dy] = ["gate", "up", "dy"].map(|name| case.get(name));
        case.check("y", &oracle::swiglu(gate, up));
        let [dgate, dup] = oracle::swiglu_backward(dy, gate, up);
        case.check("dgate", &dgate);
        case.check("dup", &dup);
    }
}

#[test]
fn products_and_norms() {
    let golden = golden();
    for case in GoldenOp::new(&golden, "matmul").cases() {
        let [a, b, dy] = ["a", "b", "dy"].map(|name| case.get(name));
        let [ta, tb] = [0, 1].map(|flag| case.get("flags")[flag] == 1.0);
        let side = |values, [rows, cols]: [usize; 2], read_transposed: bool, stored: bool| Matrix {
            values,
            size: if stored { [cols, rows] } else { [rows, cols] },
            transposed: read_transposed != stored,
        };
        // a, b and dy as the product reads them: 3 x 5, 5 x 4 and 3 x 4.
        let a = |transposed| side(a, [3, 5], transposed, ta);
        let b = |transposed| side(b, [5, 4], transposed, tb);
        let dy = |transposed| side(dy, [3, 4], transposed, false);
        case.check("y", &oracle::matmul(a(false), b(false)));
        // The gradient rule of the core, in terms of the same op.
        let da = if ta {
            [b(false), dy(true)]
        } else {
            [dy(false), b(true)]
        };
        case.check("da", &oracle::matmul(da[0], da[1]));
        let db = if tb {
            [dy(true), a(false)]
        } else {
            [a(true), dy(false)]
        };
        case.check("db", &oracle::matmul(db[0], db[1]));
    }
    for case in GoldenOp::new(&golden, "adapted_row_norms").cases() {
        let [weight, a, b] = ["weight", "a", "b"].map(|name| case.get(name));
        let (alpha, n) = (case.get("alpha")[0], case.get("y").len());
        let m = weight.len() / n;
        let updated = oracle::updated_weight(weight, a, b, alpha, [n, m]);
        case.check("y", &oracle::row_norms(&updated, m));
    }
}

#[test]
fn embeddings() {
    for case in GoldenOp::new(&golden(), "embedding").cases() {
        let (tokens, weight, dy) = (case.integers("tokens"), case.get("weight"), case.get("dy"));
        let width = dy.len() / tokens.len();
        let size = [weight.len() / width, width];
        case.check("y", &oracle::embedding(&tokens, weight, size, ByRow));
        let dweight = oracle::embedding_backward(dy, &tokens, size, ByRow);
        case.check("dweight", &dweight);
        let columns = transposed(weight, size);
        case.check("y", &oracle::embedding(&tokens, &columns, size, ByColumn));
        let dcolumns = oracle::embedding_backward(dy, &tokens, size, ByColumn);
        case.check("dweight", &transposed(&dcolumns, [size[1], size[0]]));
    }
}

fn transposed(matrix: &[f64], [rows, cols]: [usize; 2]) -> Vec<f64> {
    let places = (0..cols).flat_map(|col| (0..rows).map(move |row| row * cols + col));
    places.map(|at| matrix[at]).collect()
}

#[test]
fn losses() {
    for case in GoldenOp::new(&golden(), "cross_entropy").cases() {
        let (logits, labels) = (case.get("logits"), case.integers("labels"));
        let vocab = logits.len() / labels.len();
        let made = oracle::cross_entropy(logits, &labels, vocab);
        case.check("loss", &made.loss);
        case.check("lse", &made.lse);
        case.check("correct", &made.correct);
        let factor = case.get("factor")[0];
        let lse = case.get("lse");
        let dlogits = oracle::cross_entropy_backward(logits, &labels, lse, vocab, factor);
        case.check("dlogits", &dlogits);
    }
}

#[test]
fn flat_runs() {
    let golden = golden();
    for case in GoldenOp::new(&golden, "sum_squares").cases() {
        case.check("y", &[oracle::sum_squares(case.get("x"))]);
    }
    for case in GoldenOp::new(&golden, "first_not_finite").cases() {
        case.check("y", &[oracle::first_not_finite(case.get("x"))]);
    }
    for case in GoldenOp::new(&golden, "cast").cases() {
        let dtype = DType::from_name(case.prefix.trim_start_matches("cast.")).expect("a dtype");
        let found: Vec<f64> = case.get("x").iter().map(|&x| nearest(dtype, x)).collect();
        assert_eq!(found, case.get("y"), "{}", case.prefix);
    }
}

/// A function of each number.
fn each(x: &[f64], function: impl Fn(f64) -> f64) -> Vec<f64> {
    x.iter().map(|&x| function(x)).collect()
}

#[test]
fn primitives_of_each_number() {
    let golden = golden();
    for case in GoldenOp::new(&golden, "exp").cases() {
        case.check("y", &each(case.get("x"), elementwise::exp));
    }
    for case in GoldenOp::new(&golden, "log").cases() {
        case.check("y", &each(case.get("x"), elementwise::log));
    }
    for case in GoldenOp::new(&golden, "sigmoid").cases() {
        case.check("y", &each(case.get("x"), elementwise::sigmoid));
    }
    for case in GoldenOp::new(&golden, "tanh").cases() {
        case.check("y", &each(case.get("x"), elementwise::tanh));
    }
    for case in GoldenOp::new(&golden, "erf").cases() {
        case.check("y", &each(case.get("x"), oracle::erf));
    }
    for case in GoldenOp::new(&golden, "rsqrt").cases() {
        let factors = case.get("factors");
        let factors = [factors[0], factors[1]];
        let found = each(case.get("x"), |x| elementwise::rsqrt(x, factors));
        case.check("y", &found);
    }
    for case in GoldenOp::new(&golden, "sinusoids").cases() {
        let positions = case.integers("positions");
        let [inv_freq, amplitude] = ["inv_freq", "amplitude"].map(|name| case.get(name));
        let of =
            |function: fn(f64) -> f64| oracle::sinusoids(&positions, inv_freq, amplitude, function);
        case.check("cos", &of(f64::cos));
        case.check("sin", &of(f64::sin));
    }
}

#[test]
fn primitives_of_rows() {
    let golden = golden();
    for case in GoldenOp::new(&golden, "expand").cases() {
        let copies = case.integers("copies");
        let copies = [copies[0] as usize, copies[1] as usize];
        let times = case.get("y").len() / case.get("x").len();
        assert_eq!(times, copies[0] * copies[1]);
        let columns = if case.prefix == "expand.rows" { 1 } else { 3 };
        case.check("y", &oracle::expand(case.get("x"), columns, copies));
        case.check("dx", &oracle::contract(case.get("dy"), columns, copies));
    }
    for case in GoldenOp::new(&golden, "broadcast_param").cases() {
        case.check("y", &oracle::broadcast_param(case.get("weight"), 3, 2));
    }
    for case in GoldenOp::new(&golden, "row_max").cases() {
        let (x, index) = (case.get("x"), case.integers("index"));
        case.check("y", &oracle::row_max(x, 7));
        case.check("is_argmax", &oracle::is_argmax(x, &index, 7));
    }
    for case in GoldenOp::new(&golden, "pick").cases() {
        let (x, index) = (case.get("x"), case.integers("index"));
        case.check("y", &oracle::pick(x, &index, 7));
        case.check("one_hot", &oracle::one_hot(&index, 7));
    }
    for case in GoldenOp::new(&golden, "scale_trained").cases() {
        let factor = case.get("factor")[0];
        let found = oracle::scale_trained(case.get("x"), &case.integers("labels"), factor);
        case.check("y", &found);
    }
    for case in GoldenOp::new(&golden, "swap_halves").cases() {
        case.check("y", &oracle::swap_halves(case.get("x"), 5, 2));
    }
}
