//! Logits and labels -> a loss per token, and the logits' gradient.
//!
//! `lse_t = log sum_v e^l_tv`, `loss_t = lse_t - l_t,label`, `dl_tv = (e^(l_tv - lse_t) - [v =
//! label]) scale`.

use espalier_interface::{PluginError, Result, Services};

use crate::element::{Element, Real};
use crate::lanes;
use crate::rounded::{rounded, rounded_in_place};
use crate::simd::vectorized;
use crate::split::{Parts, chunks_mut, rows_per_chunk};

/// The label of a token that is not trained.
pub const IGNORED: i32 = -100;

/// The outputs of [`cross_entropy`], all `[T]`, 0 where a token is not trained.
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
/// The first label that is neither `-100` nor in `0..V`.
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
                    |l| (l - max).exp_under_88(),
                ),
            )
        },
    );
    let log = sum.ln();
    let logit = row[label].load();
    let first = logit == max && !row[..label].iter().any(|l| l.load() == max);
    ((max - logit) + log, max + log, i32::from(first))
}

/// Writes the logits' gradient, 0 where a token is not trained; without `logits` over those that
/// `dlogits` holds.
///
/// # Shapes
/// `logits`, `dlogits`: `[T, V]`; `labels`, `log_sum_exp`: `[T]`. `scale` is the loss's gradient,
/// 1 over the step's trained tokens.
pub fn cross_entropy_backward<E: Element>(
    services: &dyn Services,
    logits: Option<&[E]>,
    labels: &[i32],
    log_sum_exp: &[E::Acc],
    scale: f64,
    dlogits: &mut [E],
) {
    if labels.is_empty() {
        return;
    }
    let vocab = dlogits.len() / labels.len();
    assert!(
        logits.is_none_or(|logits| logits.len() == dlogits.len()),
        "cross_entropy_backward: shapes disagree"
    );
    assert!(
        dlogits.len() == labels.len() * vocab,
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
                let row = logits.map(|logits| &logits[t * vocab..(t + 1) * vocab]);
                gradient(row, labels[t] as usize, log_sum_exp[t], scale, out);
            }
        },
    );
}

/// A row's gradient; without `row`, of what `out` holds.
fn gradient<E: Element>(
    row: Option<&[E]>,
    label: usize,
    lse: E::Acc,
    scale: E::Acc,
    out: &mut [E],
) {
    let of_label = row.unwrap_or(out)[label].load();
    let gradients = &mut *out;
    vectorized(
        #[inline(always)]
        move || {
            let Some(row) = row else {
                return rounded_in_place(
                    gradients,
                    #[inline(always)]
                    |l| (l - lse).exp_under_88() * scale,
                );
            };
            rounded(
                gradients,
                #[inline(always)]
                |at, values| {
                    for (value, &l) in values.iter_mut().zip(&row[at]) {
                        *value = (l.load() - lse).exp_under_88() * scale;
                    }
                },
            );
        },
    );
    let probability = (of_label - lse).exp();
    out[label] = E::store((probability - E::Acc::ONE) * scale);
}

#[cfg(test)]
mod tests;
