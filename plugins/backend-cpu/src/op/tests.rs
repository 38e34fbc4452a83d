//! Every op launched through the device equals its kernel.

mod attention;
mod layer_norm;

use espalier_interface::graph::Dim::{Fixed, Tokens};
use espalier_interface::random::{self, Purpose};
use espalier_interface::{DType, Serial};
use espalier_kernels as kernels;
use espalier_kernels::added::Added;
use espalier_kernels::element::Element;
use espalier_kernels::rms_norm::Rounded;
use half::bf16;
use serde_json::json;

use crate::rig::{Array, Rig, array, integers, numbers};

/// `n` normal numbers of stream `stream`.
pub fn normal<E: Element>(n: usize, stream: u32) -> Vec<E> {
    let mut x = vec![E::default(); n];
    kernels::fill::normal(&Serial, [1, 2], stream, [0.0, 1.0], &mut x);
    x
}

pub fn rows<E: Element>(x: &[E], width: usize) -> Array {
    array(&[Tokens, Fixed(width as u64)], x)
}

fn flat<E: Element>(x: &[E]) -> Array {
    array(&[Fixed(x.len() as u64)], x)
}

/// Norms of whole rows, or of each `group` of their columns.
fn norms<E: Element>(group: usize) {
    let (t, d) = (5, 24);
    let (x, dy, w) = (
        normal::<E>(t * d, 1),
        normal::<E>(t * d, 2),
        normal::<f32>(group, 3),
    );
    let mut y = vec![E::default(); t * d];
    kernels::rms_norm::rms_norm(&Serial, Rounded, &x, &w, 1e-5, &mut y);
    let rig = Rig::new("rms_norm", t).input(rows(&x, d));
    let rig = rig.param(&[group as u64], &w).with("eps", 1e-5);
    let rig = rig.output(rows(&normal::<E>(t * d, 9), d));
    assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);

    kernels::rms_norm::rms_norm_backward(
        &Serial,
        Rounded,
        &x,
        &w,
        &dy,
        1e-5,
        Added::Nothing,
        &mut y,
    );
    let rig = Rig::new("rms_norm_backward", t)
        .input(rows(&dy, d))
        .input(rows(&x, d));
    let rig = rig
        .param(&[group as u64], &w)
        .output(rows(&x, d))
        .with("eps", 1e-5);
    assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), y);
    let earlier = normal::<E>(t * d, 5);
    let mut sum = earlier.clone();
    kernels::arithmetic::add(&Serial, &earlier, &y, 1.0, &mut sum);
    let rig = Rig {
        op: "rms_norm_backward.2",
        ..rig.input(rows(&earlier, d))
    };
    assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), sum);
    let mut ranges = rig.ranges();
    let last = ranges.len() - 1;
    ranges[last] = ranges[2];
    rig.launch(&ranges).expect("in the memory of what is added");
    assert_eq!(numbers::<E>(&rig.read(ranges[2])), sum);

    let start: Vec<E::Acc> = normal(group, 4);
    let (mut dw, mut inverse) = (start.clone(), vec![Default::default(); t * d / group]);
    kernels::rms_norm::rms_norm_backward_weight(
        &Serial,
        Rounded,
        &x,
        &dy,
        1e-5,
        &mut inverse,
        &mut dw,
    );
    let rig = Rig::new("rms_norm_weight_backward", t)
        .input(rows(&dy, d))
        .input(rows(&x, d));
    let rig = rig.output(flat(&start)).with("eps", 1e-5);
    assert_eq!(numbers::<E::Acc>(&rig.run().unwrap()[0]), dw);
}

#[test]
fn norms_in_every_dtype() {
    norms::<f32>(24);
    norms::<f32>(8);
    norms::<bf16>(24);
    norms::<f64>(24);
}

#[test]
fn embeddings_by_row_and_by_column() {
    use kernels::embedding::Table;
    let (tokens, vocab, d) = ([3, 0, 3], 4, 6);
    let (w, dy) = (normal::<f32>(vocab * d, 1), normal::<bf16>(3 * d, 2));
    for (table, shape) in [(Table::Rows, [4, 6]), (Table::Columns, [6, 4])] {
        let transposed = table == Table::Columns;
        let mut y = vec![bf16::ZERO; 3 * d];
        kernels::embedding::embedding(&Serial, &w, vocab, table, &tokens, &mut y).unwrap();
        let rig = Rig::new("embedding", 3)
            .input(integers(&tokens))
            .param(&shape, &w);
        let rig = rig.output(rows(&dy, d)).with("transposed", transposed);
        assert_eq!(numbers::<bf16>(&rig.run().unwrap()[0]), y);

        let mut dw = w.clone();
        kernels::embedding::embedding_backward(&Serial, &dy, &tokens, vocab, table, &mut dw)
            .unwrap();
        let rig = Rig::new("embedding_backward", 3)
            .input(rows(&dy, d))
            .input(integers(&tokens));
        let rig = rig
            .output(array(&shape.map(Fixed), &w))
            .with("transposed", transposed);
        assert_eq!(numbers::<f32>(&rig.run().unwrap()[0]), dw);
    }
    let rig = Rig::new("embedding", 1)
        .input(integers(&[4]))
        .param(&[4, 6], &w);
    let error = rig.output(rows(&w[..d], d)).run().unwrap_err();
    assert!(error.message.contains("token 4 at index 0"), "{error}");
}

#[test]
fn ropes_both_ways_alone_and_in_pairs() {
    use kernels::rope::Direction;
    let (positions, inv_freq) = ([4, 9], [1.0f32, 0.1]);
    let x = [16, 8].map(|d| (d, normal::<f32>(2 * d, 1)));
    for (op, fused, way) in [
        ("rope", "rope.2", Direction::Forward),
        ("rope_backward", "rope_backward.2", Direction::Backward),
    ] {
        let attributed = |rig: Rig| {
            rig.with("head_dim", 4)
                .with("inv_freq", json!(inv_freq))
                .with("scaling", 1.2)
        };
        let mut pair = attributed(Rig::new(fused, 2));
        let mut both = Vec::new();
        for (d, x) in &x {
            let mut y = vec![0.0f32; 2 * d];
            kernels::rope::rope(&Serial, x, &positions, (4, &inv_freq), 1.2, way, &mut y);
            let rig = attributed(Rig::new(op, 2).input(rows(x, *d)));
            let rig = rig.input(integers(&positions)).output(rows(x, *d));
            assert_eq!(numbers::<f32>(&rig.run().unwrap()[0]), y);
            pair = pair.input(rows(x, *d)).output(rows(x, *d));
            both.push(y);
        }
        let found = pair.input(integers(&positions)).run().unwrap();
        let found: Vec<_> = found.iter().map(|y| numbers::<f32>(y)).collect();
        assert_eq!(found, both);
    }
}

#[test]
fn swiglus() {
    let (t, f) = (3, 20);
    let [g, u, dy]: [Vec<bf16>; 3] = [1, 2, 3].map(|stream| normal(t * f, stream));
    let mut y = g.clone();
    kernels::swiglu::swiglu(&Serial, &g, &u, &mut y);
    let rig = Rig::new("swiglu", t)
        .input(rows(&g, f))
        .input(rows(&u, f))
        .output(rows(&g, f));
    assert_eq!(numbers::<bf16>(&rig.run().unwrap()[0]), y);
    let (mut dg, mut du) = (g.clone(), g.clone());
    kernels::swiglu::swiglu_backward(&Serial, &g, &u, &dy, &mut dg, &mut du);
    let rig = Rig::new("swiglu_backward", t)
        .input(rows(&dy, f))
        .input(rows(&g, f));
    let rig = rig
        .input(rows(&u, f))
        .output(rows(&g, f))
        .output(rows(&g, f));
    let made = rig.run().unwrap();
    assert_eq!(
        (numbers::<bf16>(&made[0]), numbers::<bf16>(&made[1])),
        (dg, du)
    );
}

#[test]
fn sums_and_products_also_in_place() {
    let (a, b) = (normal::<f32>(40, 1), normal::<f32>(40, 2));
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + 0.5 * b).collect();
    let product: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
    let scaled: Vec<f32> = a.iter().map(|a| a * -3.0).collect();
    let two = |op| {
        Rig::new(op, 4)
            .input(rows(&a, 10))
            .input(rows(&b, 10))
            .output(rows(&b, 10))
    };
    let add = two("add").with("alpha", 0.5);
    assert_eq!(numbers::<f32>(&add.run().unwrap()[0]), sum);
    assert_eq!(numbers::<f32>(&two("mul").run().unwrap()[0]), product);
    let scale = Rig::new("scale", 4)
        .input(rows(&a, 10))
        .output(rows(&b, 10))
        .with("alpha", -3.0);
    assert_eq!(numbers::<f32>(&scale.run().unwrap()[0]), scaled);

    let mut ranges = add.ranges();
    ranges[2] = ranges[0];
    add.launch(&ranges).unwrap();
    assert_eq!(numbers::<f32>(&add.read(ranges[0])), sum);
    ranges[2] = ranges[1];
    let error = add.launch(&ranges).unwrap_err();
    assert!(error.message.contains("ranges 1 and 2 overlap"), "{error}");
    let mut ranges = scale.ranges();
    ranges[1] = ranges[0];
    scale.launch(&ranges).unwrap();
    assert_eq!(numbers::<f32>(&scale.read(ranges[0])), scaled);
}

#[test]
fn dropout_draws_by_seed_step_and_site() {
    let (x, positions, sequences) = (normal::<f32>(3 * 10, 1), [0, 1, 0], [5, 5, 6]);
    let seed = 7 | 9 << 32;
    let key = random::key(seed, Purpose::DROPOUT, 12);
    let mask = kernels::dropout::Mask {
        key,
        site: 3,
        probability: 0.5,
    };
    let mut y = x.clone();
    kernels::dropout::dropout(&Serial, &x, &positions, &sequences, mask, &mut y);
    let rig = Rig::new("dropout", 3)
        .input(rows(&x, 10))
        .input(integers(&sequences));
    let rig = rig
        .input(integers(&positions))
        .output(rows(&x, 10))
        .with("p", 0.5);
    let rig = rig.scalars(&[7.0, 9.0, 12.0, 3.0]);
    assert_eq!(numbers::<f32>(&rig.run().unwrap()[0]), y);
}

fn losses<E: Element>() {
    let (labels, vocab) = ([2, -100, 11], 12);
    let logits = normal::<E>(3 * vocab, 1);
    let (mut loss, mut lse, mut correct) =
        ([Default::default(); 3], [Default::default(); 3], [0; 3]);
    let out = kernels::cross_entropy::Losses {
        loss: &mut loss,
        log_sum_exp: &mut lse,
        correct: &mut correct,
    };
    kernels::cross_entropy::cross_entropy(&Serial, &logits, &labels, out).unwrap();
    let per_token = |x: &[E::Acc]| array(&[Tokens], x);
    let rig = Rig::new("cross_entropy", 3)
        .input(rows(&logits, vocab))
        .input(integers(&labels));
    let zeros = [E::Acc::default(); 3];
    let rig = rig
        .output(per_token(&zeros))
        .output(per_token(&zeros))
        .output(integers(&[7; 3]));
    let made = rig.run().unwrap();
    assert_eq!(numbers::<E::Acc>(&made[0]), loss);
    assert_eq!(numbers::<E::Acc>(&made[1]), lse);
    assert_eq!(made[2], correct.map(i32::to_le_bytes).concat());
    let mut d = logits.clone();
    let (to, from) = (&mut d[..], Some(&logits[..]));
    kernels::cross_entropy::cross_entropy_backward(&Serial, from, &labels, &lse, 0.5, to);
    let rig = Rig::new("cross_entropy_backward", 3).input(rows(&logits, vocab));
    let rig = rig
        .input(integers(&labels))
        .input(per_token(&lse))
        .scalars(&[0.5]);
    let rig = rig.output(rows(&logits, vocab));
    assert_eq!(numbers::<E>(&rig.run().unwrap()[0]), d);
}

#[test]
fn losses_in_every_dtype() {
    losses::<f32>();
    losses::<bf16>();
    losses::<f64>();
}

#[test]
fn biases_add_up() {
    let (dy, start) = (normal::<bf16>(4 * 10, 1), normal::<f32>(10, 2));
    let mut db = start.clone();
    kernels::bias::bias_backward(&Serial, &dy, &mut db);
    let rig = Rig::new("bias_backward", 4)
        .input(rows(&dy, 10))
        .output(flat(&start));
    assert_eq!(numbers::<f32>(&rig.run().unwrap()[0]), db);
}

#[test]
fn flat_runs_are_zeroed_cast_and_drawn() {
    let x = normal::<f32>(100, 1);
    let zeroed = Rig::new("zero", 0).output(flat(&x)).run().unwrap();
    assert!(zeroed[0].iter().all(|&byte| byte == 0));
    let half: Vec<bf16> = x.iter().map(|&v| bf16::from_f32(v)).collect();
    let cast = Rig::new("cast", 0)
        .input(flat(&x))
        .output(flat(&[bf16::ZERO; 100]));
    assert_eq!(numbers::<bf16>(&cast.run().unwrap()[0]), half);
    let key = random::key(5, Purpose::INIT, 0);
    let (mut uniform, mut normals) = (vec![0f32; 100], vec![0f32; 100]);
    kernels::fill::uniform(&Serial, key, 8, [-0.1, 0.1], &mut uniform);
    kernels::fill::normal(&Serial, key, 8, [0.0, 0.02], &mut normals);
    let init = |kind: &str| Rig::new("init", 0).output(flat(&x)).with("kind", kind);
    let drawn = |rig: Rig| numbers::<f32>(&rig.scalars(&[5.0, 0.0, 8.0]).run().unwrap()[0]);
    assert_eq!(drawn(init("uniform").with("bound", 0.1)), uniform);
    assert_eq!(drawn(init("normal").with("std", 0.02)), normals);
    assert_eq!(drawn(init("ones")), [1.0; 100]);
    assert_eq!(drawn(init("zeros")), [0.0; 100]);
}

#[test]
fn reductions_give_one_number() {
    let mut x = normal::<f32>(40_000, 1);
    let squares = Rig::new("sum_squares", 0)
        .input(flat(&x))
        .output(flat(&[0.0f64]));
    let expected = kernels::reduce::sum_squares(&Serial, &x, &mut [0.0; 3]);
    assert_eq!(numbers::<f64>(&squares.run().unwrap()[0]), [expected]);
    let one = Array {
        operand: espalier_interface::Operand {
            shape: vec![Fixed(1)],
            dtype: DType::I64,
        },
        bytes: vec![0; 8],
    };
    let search = |x: &[f32]| {
        Rig::new("first_not_finite", 0)
            .input(flat(x))
            .output(one.clone())
            .run()
            .unwrap()
    };
    assert_eq!(search(&x)[0], (-1i64).to_le_bytes());
    x[30_000] = f32::NAN;
    assert_eq!(search(&x)[0], 30_000i64.to_le_bytes());
}

fn adamw<P: Element, G: Element>() {
    let n = 50;
    let (g, p) = (normal::<G>(n, 1), normal::<P>(n, 2));
    let (mut m, mut v) = (normal::<G::Acc>(n, 3), normal::<G::Acc>(n, 4));
    v.iter_mut().for_each(|v| *v = *v * *v);
    let rig = Rig::new("adamw", 0)
        .input(flat(&g))
        .output(flat(&p))
        .output(flat(&m));
    let rig = rig
        .output(flat(&v))
        .scalars(&[1e-3, 0.9, 0.99, 1e-8, 0.1, 3.0, 0.5]);
    let made = rig.run().unwrap();
    let config = kernels::adamw::Adamw {
        learning_rate: 1e-3,
        betas: [0.9, 0.99],
        eps: 1e-8,
        weight_decay: 0.1,
        step: 3,
        gradient_scale: 0.5,
    };
    let mut params = p.clone();
    kernels::adamw::adamw(
        &Serial,
        config,
        kernels::stochastic::ToNearest,
        &g,
        &mut params,
        &mut m,
        &mut v,
    );
    assert_eq!(numbers::<P>(&made[0]), params);
    assert_eq!(numbers::<G::Acc>(&made[1]), m);
    assert_eq!(numbers::<G::Acc>(&made[2]), v);
    assert_ne!(params, p);
}

#[test]
fn adamw_updates_all_three() {
    adamw::<f32, f32>();
    adamw::<bf16, f32>();
    adamw::<f64, f64>();
}
