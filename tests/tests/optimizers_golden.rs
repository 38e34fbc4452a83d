//! The steps of optimizers in the kit of ops against torch's own in f64.

mod golden_ops;

use espalier_conformance::ops::oracle;
use espalier_conformance::ops::updates::{AdamwStep, SgdStep, adamw_step, sgd_step};

use golden_ops::{GoldenOp, golden};

#[test]
fn optimizer_steps() {
    for case in GoldenOp::new(&golden(), "adamw").cases() {
        let scalars = case.get("scalars");
        let gradients = case.get("gradients");
        let n = case.get("param").len() - gradients.len();
        let state = ["param", "m", "v"].map(|name| case.get(name));
        let mut found = state.map(|all| all[..n].to_vec());
        let mut all = found.clone();
        for (index, gradient) in gradients.chunks_exact(n).enumerate() {
            let step = AdamwStep {
                learning_rate: scalars[0],
                beta1: scalars[1],
                beta2: scalars[2],
                eps: scalars[3],
                weight_decay: scalars[4],
                step: index as f64 + 1.0,
                // The gradient comes twice as large, and is halved.
                factor: 0.5,
            };
            let doubled = oracle::scale(gradient, 2.0);
            let [param, m, v] = &found;
            found = adamw_step(step, &doubled, [param, m, v]);
            all.iter_mut()
                .zip(&found)
                .for_each(|(all, found)| all.extend(found));
        }
        for (name, all) in ["param", "m", "v"].iter().zip(&all) {
            case.check(name, all);
        }
    }
}

#[test]
fn sgd_steps() {
    let golden = golden();
    let cases: Vec<_> = GoldenOp::new(&golden, "sgd").cases().into_iter().collect();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let scalars = case.get("scalars");
        let gradients = case.get("gradients");
        let n = case.get("param").len() - gradients.len();
        let state = ["param", "buffer"].map(|name| case.get(name));
        let mut found = state.map(|all| all[..n].to_vec());
        let mut all = found.clone();
        for gradient in gradients.chunks_exact(n) {
            let step = SgdStep {
                learning_rate: scalars[0],
                momentum: scalars[1],
                nesterov: scalars[2],
                weight_decay: scalars[3],
                // The gradient comes twice as large, and is halved.
                factor: 0.5,
            };
            let doubled = oracle::scale(gradient, 2.0);
            let [param, buffer] = &found;
            found = sgd_step(step, &doubled, [param, buffer]);
            all.iter_mut()
                .zip(&found)
                .for_each(|(all, found)| all.extend(found));
        }
        for (name, all) in ["param", "buffer"].iter().zip(&all) {
            case.check(name, all);
        }
    }
}
