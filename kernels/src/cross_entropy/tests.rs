//! Losses and gradients compared with finite differences; ties, labels and NaN.

use espalier_interface::Serial;

use super::*;
use crate::check;

fn forward<E: Element>(
    services: &dyn Services,
    logits: &[E],
    labels: &[i32],
) -> (Vec<E::Acc>, Vec<E::Acc>, Vec<i32>) {
    let n = labels.len();
    let (mut loss, mut lse) = (vec![E::Acc::ZERO; n], vec![E::Acc::ZERO; n]);
    let mut correct = vec![7; n];
    let out = Losses {
        loss: &mut loss,
        log_sum_exp: &mut lse,
        correct: &mut correct,
    };
    cross_entropy(services, logits, labels, out).unwrap();
    (loss, lse, correct)
}

#[test]
fn gradient_is_the_difference() {
    let (labels, vocab) = ([3, IGNORED, 0], 37);
    let logits = check::numbers(labels.len() * vocab, 1);
    let (loss, lse, _) = forward(&Serial, &logits, &labels);
    assert_eq!((loss[1], lse[1]), (0.0, 0.0));
    let mut d = vec![1.0; logits.len()];
    cross_entropy_backward(&Serial, Some(&logits), &labels, &lse, 0.25, &mut d);
    let total = |l: &[f64]| 0.25 * forward(&Serial, l, &labels).0.iter().sum::<f64>();
    check::gradient(total, &logits, &d);
}

#[test]
fn the_first_largest_logit_is_the_prediction() {
    let logits = [1.0f32, 5.0, 5.0, 1.0, 5.0, 5.0, 9.0, 0.0, 0.0];
    let (loss, _, correct) = forward(&Serial, &logits, &[1, 2, 0]);
    assert_eq!(correct, [1, 0, 1]);
    assert!((f64::from(loss[0]) - (2.0 + (-4.0f64).exp()).ln()).abs() < 1e-6);
}

#[test]
fn f32_and_threads_agree() {
    let (tokens, vocab) = (20, 5000);
    let logits = check::numbers(tokens * vocab, 1);
    let labels: Vec<i32> = (0..tokens as i32).map(|t| t * 11).collect();
    let lf = check::floats(&logits);
    check::same_on_two_threads(|services| {
        let (loss, lse, correct) = forward(services, &lf, &labels);
        let mut d = vec![0.0f32; lf.len()];
        cross_entropy_backward(services, Some(&lf), &labels, &lse, 0.1, &mut d);
        (loss, correct, d)
    });
    check::close(
        &forward(&Serial, &lf, &labels).0,
        &forward(&Serial, &logits, &labels).0,
        1e-6,
    );
}

/// The gradient has the same bits over the logits and beside them.
fn in_place<E: Element>() {
    let (labels, vocab) = ([3, IGNORED, 700, 0], 701);
    let logits = check::numbers(labels.len() * vocab, 1).into_iter();
    let logits: Vec<E> = logits.map(|x| E::store(E::Acc::from_f64(x))).collect();
    let (_, lse, _) = forward(&Serial, &logits, &labels);
    let mut beside = vec![E::default(); logits.len()];
    cross_entropy_backward(&Serial, Some(&logits), &labels, &lse, 0.3, &mut beside);
    let mut over = logits;
    cross_entropy_backward(&Serial, None, &labels, &lse, 0.3, &mut over);
    assert_eq!(over, beside);
}

#[test]
fn a_gradient_over_its_logits_has_the_same_bits() {
    in_place::<f64>();
    in_place::<f32>();
    in_place::<half::bf16>();
}

#[test]
fn a_label_outside_the_vocabulary_is_named_and_nan_stays() {
    let out = Losses {
        loss: &mut [0.0],
        log_sum_exp: &mut [0.0],
        correct: &mut [0],
    };
    let e = cross_entropy(&Serial, &[0.0f32; 3], &[3], out).unwrap_err();
    assert!(e.message.starts_with("label 3 at index 0"), "{e}");
    assert!(forward(&Serial, &[0.0f32, f32::NAN, 1.0], &[0]).0[0].is_nan());
}
