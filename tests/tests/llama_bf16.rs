//! Training in bf16 on every backend against the peers' bf16 runs: logits, losses, gradients,
//! curves of training and trained adapters, on dense and packed bases.
//!
//! A tolerance is a multiple of the distance between the peers' own bf16 and f32 numbers, which
//! `tests/golden/bf16/summary.json` records for every quantity. Where two runs round the same
//! values, they differ where the order of a sum moves a value across a rounding boundary. Where
//! they round different values, their errors are independent and the multiple is about the root
//! of 2.

#![allow(clippy::print_stdout)] // Figures of every distance, for new bounds.

mod bf16_cases;

use std::collections::BTreeMap;

use bf16_cases::{BASES, Base, Case, Summary};
use espalier_engine::step;
use espalier_interface::{Device, KernelRequest, Launch, Result, Stream};
use espalier_tests::{
    Golden, Rig, downloaded, largest_difference, micro_batch, relative_norm, step_of,
};
use half::bf16;

/// The backends that are tested.
const BACKENDS: [&str; 2] = ["cpu", "late"];

/// Most multiples of the peers' distance between bf16 and f32 by which ours may differ from the
/// peers' bf16.
struct Bounds {
    /// Of the logits.
    logits: f64,
    /// Of the mean loss, of the largest distance of all cases: one number may be near by chance.
    loss: f64,
    /// Of all gradients together.
    gradients: f64,
}

impl Bounds {
    fn of(base: &Base, case: &Case) -> Self {
        let [logits, loss, gradients] = match (base.name, case.name.as_str()) {
            // The same values are rounded: all bits agree but for sums in another order. Found: 0.
            ("dense", "head") => [0.02, 0.02, 0.05],
            // The same forward. The peers round once more in a norm's gradient. Found: 0, 0, 0.24.
            ("dense", "feed_forward") => [0.05, 0.05, 0.3],
            // Attention's sums have another order: 0.19 and 0.33 with AVX2 there. The peers round
            // softmax's weights and their gradients, as is done here with AVX-512-BF16, where they
            // are f32 otherwise. Found: 0.33, 0.04, 0.75 and 0.33, 0.04, 0.72.
            ("dense", "values") => [0.5, 1.0, 0.9],
            // The peers round cosines, sines and products of the rotation. Found: 0.83, 0.5, 0.91.
            ("dense", "attention") => [1.1, 3.0, 1.1],
            // Independent errors: the root of 2, and 6 % for the order of sums. Found: up to 1.28
            // and 1.21. A loss is one number, of which twice the deviation is 2.8; found: 1.1.
            _ => [1.5, 3.0, 1.5],
        };
        Bounds {
            logits,
            loss,
            gradients,
        }
    }
}

/// Our f32 numbers are as far from the peers' bf16 as the peers' f32 are, but for this share: same
/// codes, same model. Found: up to 0.005.
const SAME_F32: f64 = 0.02;
/// Most multiples for a single param's gradient, which has fewer numbers. Found: up to 1.50.
const ONE_GRADIENT: f64 = 2.0;
/// Our distance from our f32 numbers over the peers' distance from theirs. The peers' own
/// attention kernels, `eager` and `sdpa`, differ by up to 1.18 in it. Found: up to 1.09.
const FROM_F32: f64 = 1.2;
/// Most multiples for the largest differences of a curve's losses and norms. The peers with AVX2
/// differ by 2.0 from the peers with AVX-512, though both round the same values. Found: up to 1.5;
/// 2.2 where attention's products are by AVX-512-BF16.
const CURVE: f64 = 2.5;
/// Most multiples for the trained adapter. The peers with AVX2: 0.8. Found: up to 1.09.
const ADAPTER: f64 = 1.5;

/// What exceeds its bound, in words; every figure is printed.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn hold(&mut self, what: &str, found: f64, bound: f64) {
        let line = format!("{what}: {found:.4}, at most {bound}");
        println!("{line}");
        // A number that is not comparable exceeds every bound.
        if !matches!(found.partial_cmp(&bound), Some(order) if order.is_le()) {
            self.0.push(line);
        }
    }

    fn end(self) {
        assert!(self.0.is_empty(), "too far:\n{}", self.0.join("\n"));
    }
}

/// How far our bf16 numbers, our f32 numbers and the peers' bf16 numbers are apart, as multiples of
/// the peers' distance between bf16 and f32.
struct Distances {
    bf16_to_peer: f64,
    bf16_to_f32: f64,
    f32_to_peer: f64,
}

impl Distances {
    fn of(bf16: &[f64], f32: &[f64], peer: &[f64], own: f64) -> Self {
        Distances {
            bf16_to_peer: relative_norm(bf16, peer) / own,
            bf16_to_f32: relative_norm(bf16, f32) / own,
            f32_to_peer: relative_norm(f32, peer) / own,
        }
    }

    fn hold(&self, findings: &mut Findings, what: &str, bound: f64) {
        findings.hold(what, self.bf16_to_peer, bound);
        findings.hold(&format!("{what} from f32"), self.bf16_to_f32, FROM_F32);
        let share = (self.f32_to_peer - 1.0).abs();
        findings.hold(&format!("{what} in f32"), share, SAME_F32);
    }
}

/// A run's first batch: logits, the mean loss, and gradients by param.
struct Batch {
    logits: Vec<f64>,
    loss: f64,
    gradients: BTreeMap<String, Vec<f64>>,
}

impl Batch {
    fn of(rig: &Rig, case: &Case) -> Self {
        let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
        let loss = rig.loss_and_gradients(&step_of(vec![micro_batch(&rows, &rows)]));
        let gradients = case.params().into_iter().map(|name| {
            let gradient = rig.gradient(&name);
            (name, gradient)
        });
        Batch {
            loss,
            gradients: gradients.collect(),
            logits: rig.logits(&micro_batch(&rows, &rows)),
        }
    }

    /// Gradients as autocast returns them: it differentiates by the weights that it cast to bf16.
    fn rounded(mut self) -> Self {
        let values = self.gradients.values_mut().flatten();
        values.for_each(|x| *x = bf16::from_f64(*x).to_f64());
        self
    }

    /// The peers' bf16 run.
    fn golden(golden: &Golden, case: &Case) -> Self {
        let numbers = |key: &str| golden.numbers(&format!("{}.{key}", case.name)).to_vec();
        let gradients = case.params().into_iter().map(|name| {
            let gradient = numbers(&format!("grad.{name}"));
            (name, gradient)
        });
        Batch {
            logits: numbers("logits"),
            loss: numbers("loss")[0],
            gradients: gradients.collect(),
        }
    }

    fn all_gradients(&self) -> Vec<f64> {
        self.gradients.values().flatten().copied().collect()
    }
}

/// Calls `body` for each backend, base and case, with a name for messages.
fn each(mut body: impl FnMut(&str, &str, &Base, &Case)) {
    let summary = Summary::read();
    for backend in BACKENDS {
        for base in &BASES {
            for case in summary.cases_of(base) {
                let name = format!("{backend} {} {}", base.name, case.name);
                body(&name, backend, base, case);
            }
        }
    }
}

#[test]
fn logits_and_losses_are_the_peers() {
    let (summary, mut findings) = (Summary::read(), Findings::default());
    let largest_loss = summary.largest("loss");
    each(|name, backend, base, case| {
        let peer = Batch::golden(&base.golden(), case);
        let found = Batch::of(&base.rig(backend, case, "bf16"), case);
        let exact = Batch::of(&base.rig(backend, case, "f32"), case);
        let (bounds, own) = (
            Bounds::of(base, case),
            summary.distance(base, case, "logits"),
        );
        let logits = Distances::of(&found.logits, &exact.logits, &peer.logits, own);
        logits.hold(&mut findings, &format!("{name} logits"), bounds.logits);
        let loss = (found.loss - peer.loss).abs() / largest_loss;
        findings.hold(&format!("{name} loss"), loss, bounds.loss);
    });
    findings.end();
}

#[test]
fn every_gradient_is_the_peers() {
    let (summary, mut findings) = (Summary::read(), Findings::default());
    each(|name, backend, base, case| {
        let peer = Batch::golden(&base.golden(), case);
        let found = Batch::of(&base.rig(backend, case, "bf16"), case);
        let exact = Batch::of(&base.rig(backend, case, "f32"), case);
        let (bounds, own) = (
            Bounds::of(base, case),
            summary.distance(base, case, "gradients"),
        );
        let found = found.rounded();
        let all = [&found, &exact, &peer].map(Batch::all_gradients);
        let gradients = Distances::of(&all[0], &all[1], &all[2], own);
        gradients.hold(
            &mut findings,
            &format!("{name} gradients"),
            bounds.gradients,
        );
        for (param, expected) in &peer.gradients {
            let own = summary.gradient_distance(base, case, param);
            let distance = relative_norm(&found.gradients[param], expected) / own;
            findings.hold(&format!("{name} {param}"), distance, ONE_GRADIENT);
        }
    });
    findings.end();
}

/// `rms_norm` as `round(x r w)`, where the op is `round(round(x r) w)`.
fn round_once(device: &dyn Device, request: &KernelRequest, launch: &Launch<'_>) -> Result<()> {
    let eps = request.attributes.number("eps")?;
    let [x, weight, y] = launch.ranges else {
        panic!("a norm has three operands");
    };
    let numbers = |range| -> Result<Vec<f64>> {
        let bytes = downloaded(device, range)?;
        let elements = bytes.chunks_exact(2);
        let number = |x: &[u8]| bf16::from_le_bytes(x.try_into().expect("2 bytes")).to_f64();
        Ok(elements.map(number).collect())
    };
    let (x, weight) = (numbers(*x)?, numbers(*weight)?);
    let mut bytes = Vec::new();
    for group in x.chunks_exact(weight.len()) {
        let squares = group.iter().map(|x| x * x).sum::<f64>();
        let inverse = 1.0 / (squares / group.len() as f64 + eps).sqrt();
        for (x, weight) in group.iter().zip(&weight) {
            bytes.extend(bf16::from_f64(x * inverse * weight).to_le_bytes());
        }
    }
    device.upload(&bytes, *y, Stream(0))
}

/// A control of the bounds: without the rounding before a norm's product with its weight, all else
/// as it is, every quantity is too far.
#[test]
fn numbers_of_a_norm_that_is_rounded_once_are_not_the_peers() {
    let summary = Summary::read();
    let [base, ..] = &BASES;
    for case in summary.cases_of(base) {
        if !["head", "feed_forward"].contains(&case.name.as_str()) {
            continue;
        }
        let (peer, bounds) = (Batch::golden(&base.golden(), case), Bounds::of(base, case));
        let found = Batch::of(&base.rig_with_own_op(case, "rms_norm", round_once), case).rounded();
        let [gradients, expected] = [&found, &peer].map(Batch::all_gradients);
        for (quantity, found, expected, bound) in [
            ("logits", &found.logits, &peer.logits, bounds.logits),
            ("gradients", &gradients, &expected, bounds.gradients),
        ] {
            let own = summary.distance(base, case, quantity);
            let far = relative_norm(found, expected) / own;
            println!("{} {quantity}: {far:.4}, more than {bound}", case.name);
            assert!(
                far > bound,
                "{} {quantity}: {far}, within {bound}",
                case.name
            );
        }
    }
}

#[test]
fn twenty_adamw_steps_and_their_adapter_are_the_peers() {
    let (summary, mut findings) = (Summary::read(), Findings::default());
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    each(|name, backend, base, case| {
        if case.name != "whole" {
            return;
        }
        let (golden, rig) = (base.golden(), base.rig(backend, case, "bf16"));
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        for (index, rows) in rows.chunks(4).enumerate() {
            let batch = step_of(vec![micro_batch(rows, rows)]);
            let at = [index as u64, 20];
            let found = step::train(&rig.executor, &rig.config.optim, &batch, at, 42);
            let found = found.expect("a step");
            losses.push(found.loss);
            norms.push(found.grad_norm);
        }
        let own = |quantity: &str| summary.distance(base, case, quantity);
        let far = largest_difference(&losses, golden.numbers("whole.curve.loss"));
        findings.hold(&format!("{name} losses"), far / own("curve_loss"), CURVE);
        let peer = golden.numbers("whole.curve.norm");
        let ratios: Vec<f64> = norms.iter().zip(peer).map(|(f, p)| f / p).collect();
        let far = largest_difference(&ratios, &vec![1.0; peer.len()]);
        findings.hold(&format!("{name} norms"), far / own("curve_norm"), CURVE);
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for param in case.params() {
            found.extend(rig.values(&param));
            expected.extend_from_slice(golden.numbers(&format!("whole.last.{param}")));
        }
        let far = relative_norm(&found, &expected) / own("adapter");
        findings.hold(&format!("{name} adapter"), far, ADAPTER);
    });
    findings.end();
}
