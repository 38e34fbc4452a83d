//! Logits and labels -> a loss per token, and the logits' gradient.
//!
//! `lse_t = log sum_v e^l_tv`, `loss_t = lse_t - l_t,label`, `dl_tv = (e^(l_tv - lse_t) - [v =
//! label]) scale`.

use espalier_interface::{PluginError, Result, Services};

use crate::element::{Element, Real};
use crate::lanes;
use crate::simd::vectorized;
use crate::split::{Parts, chunks_mut, rows_per_chunk};

/// The label of a token that is not trained.
pub const IGNORED: i32 = -100;

/// What [`cross_entropy`] writes, all `[T]`, 0 where a token is not trained.
pub struct Losses<'a, R> {
    /// The loss.
    pub loss: &'a mut [R],
    /// The logarithm of the row's sum of exponentials.
    pub log_sum_exp: &'a mut [R],
    /// 1 where the first largest logit is the label's.
    pub correct: &'a mut [i32],
}

fn check_labels(labels: &[i32], vocab: usize) -> Result<()> {
    let wrong = |&label: &i32| label != IGNORED && (label < 0 || label as usize >= vocab);
    match labels.iter().position(wrong) {
        None => Ok(()),
        Some(at) => Err(PluginError::invalid(format!(
            "label {} at index {at} of the batch is neither in the vocabulary of {vocab} nor -100",
            labels[at]
        ))),
    }
}

/// Writes each token's loss, log-sum-exp and whether its prediction is right.
///
/// # Shapes
/// `logits`: `[T, V]`; `labels`: `[T]`, `-100` where a token is not trained.
///
/// # Errors
/// A label that is neither `-100` nor in `0..V`.
#[allow(unsafe_code)] // Three outputs are cut into the same rows.
pub fn cross_entropy<E: Element>(
    services: &dyn Services,
    logits: &[E],
    labels: &[i32],
    out: Losses<'_, E::Acc>,
) -> Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    let (tokens, vocab) = (labels.len(), logits.len() / labels.len());
    check_labels(labels, vocab)?;
    assert!(
        logits.len() == tokens * vocab,
        "cross_entropy: rows are not whole"
    );
    let (loss, lse) = (Parts::new(out.loss), Parts::new(out.log_sum_exp));
    let correct = Parts::new(out.correct);
    let rows = rows_per_chunk(vocab);
    services.parallel_for(tokens.div_ceil(rows), &|chunk| {
        let first = chunk * rows;
        let count = rows.min(tokens - first);
        // SAFETY: row ranges of different chunks do not overlap, and each chunk is called once.
        let (loss, lse, correct) = unsafe {
            (
                loss.part(first, count),
                lse.part(first, count),
                correct.part(first, count),
            )
        };
        for i in 0..count {
            let t = first + i;
            let row = &logits[t * vocab..(t + 1) * vocab];
            (loss[i], lse[i], correct[i]) = match labels[t] {
                IGNORED => (E::Acc::ZERO, E::Acc::ZERO, 0),
                label => one(row, label as usize),
            };
        }
    });
    Ok(())
}

/// A row's loss, log-sum-exp and whether its first largest logit is the label's.
fn one<E: Element>(row: &[E], label: usize) -> (E::Acc, E::Acc, i32) {
    let (max, sum) = vectorized(
        #[inline(always)]
        move || {
            let max = lanes::max(row);
            (
                max,
                lanes::sum(
                    row,
                    #[inline(always)]
                    |l| (l - max).exp(),
                ),
            )
        },
    );
    let log = sum.ln();
    let logit = row[label].load();
    let first = logit == max && !row[..label].iter().any(|l| l.load() == max);
    ((max - logit) + log, max + log, i32::from(first))
}

/// Writes the logits' gradient, 0 where a token is not trained.
///
/// # Shapes
/// `logits`, `dlogits`: `[T, V]`; `labels`, `log_sum_exp`: `[T]`. `scale` is the loss's gradient,
/// 1 over the step's trained tokens.
pub fn cross_entropy_backward<E: Element>(
    services: &dyn Services,
    logits: &[E],
    labels: &[i32],
    log_sum_exp: &[E::Acc],
    scale: f64,
    dlogits: &mut [E],
) {
    if labels.is_empty() {
        return;
    }
    let vocab = logits.len() / labels.len();
    assert!(
        logits.len() == dlogits.len(),
        "cross_entropy_backward: shapes disagree"
    );
    assert!(
        logits.len() == labels.len() * vocab,
        "cross_entropy_backward: rows are not whole"
    );
    let scale = E::Acc::from_f64(scale);
    chunks_mut(
        services,
        dlogits,
        rows_per_chunk(vocab) * vocab,
        |start, dlogits| {
            for (i, out) in dlogits.chunks_exact_mut(vocab).enumerate() {
                let t = start / vocab + i;
                if labels[t] == IGNORED {
                    out.fill(E::store(E::Acc::ZERO));
                    continue;
                }
                let (row, lse) = (&logits[t * vocab..(t + 1) * vocab], log_sum_exp[t]);
                let gradients = &mut *out;
                vectorized(
                    #[inline(always)]
                    move || {
                        for (d, &l) in gradients.iter_mut().zip(row) {
                            *d = E::store((l.load() - lse).exp() * scale);
                        }
                    },
                );
                let label = labels[t] as usize;
                let probability = (row[label].load() - lse).exp();
                out[label] = E::store((probability - E::Acc::ONE) * scale);
            }
        },
    );
}

#[cfg(test)]
mod tests {
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
        cross_entropy_backward(&Serial, &logits, &labels, &lse, 0.25, &mut d);
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
            cross_entropy_backward(services, &lf, &labels, &lse, 0.1, &mut d);
            (loss, correct, d)
        });
        check::close(
            &forward(&Serial, &lf, &labels).0,
            &forward(&Serial, &logits, &labels).0,
            1e-6,
        );
    }

    #[test]
    fn a_foreign_label_is_named_and_nan_stays() {
        let out = Losses {
            loss: &mut [0.0],
            log_sum_exp: &mut [0.0],
            correct: &mut [0],
        };
        let e = cross_entropy(&Serial, &[0.0f32; 3], &[3], out).unwrap_err();
        assert!(e.message.starts_with("label 3 at index 0"), "{e}");
        assert!(forward(&Serial, &[0.0f32, f32::NAN, 1.0], &[0]).0[0].is_nan());
    }
}
