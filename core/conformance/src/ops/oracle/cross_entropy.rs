//! `cross_entropy` and its gradient in f64.

/// The label of a token that is not trained.
pub const IGNORED: i32 = -100;

/// What `cross_entropy` gives for each token; zeros where the label is -100.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// `lse - l_label`.
    pub loss: Vec<f64>,
    /// `log sum_v e^l_v`.
    pub lse: Vec<f64>,
    /// 1 where the first largest logit is the label's.
    pub correct: Vec<f64>,
}

/// The losses of logits `[T, V]` and labels `[T]`.
pub fn cross_entropy(logits: &[f64], labels: &[i32], vocab: usize) -> Losses {
    let mut losses = Losses::default();
    for (l, &label) in logits.chunks_exact(vocab).zip(labels) {
        let (mut loss, mut lse, mut correct) = (0.0, 0.0, 0.0);
        if label != IGNORED {
            let mut largest = 0;
            for v in 0..vocab {
                if l[v] > l[largest] {
                    largest = v;
                }
            }
            let sum: f64 = l.iter().map(|l_v| (l_v - l[largest]).exp()).sum();
            lse = l[largest] + sum.ln();
            loss = lse - l[label as usize];
            correct = f64::from(largest == label as usize);
        }
        losses.loss.push(loss);
        losses.lse.push(lse);
        losses.correct.push(correct);
    }
    losses
}

/// `dl_v = (e^(l_v - lse) - [v = label]) factor`, `[T, V]`; lse `[T]` as the op is given it.
pub fn cross_entropy_backward(
    logits: &[f64],
    labels: &[i32],
    lse: &[f64],
    vocab: usize,
    factor: f64,
) -> Vec<f64> {
    let mut dlogits = Vec::with_capacity(logits.len());
    for (t, &label) in labels.iter().enumerate() {
        for v in 0..vocab {
            let one = f64::from(v as i32 == label);
            let probability = (logits[t * vocab + v] - lse[t]).exp();
            dlogits.push(match label {
                IGNORED => 0.0,
                _ => (probability - one) * factor,
            });
        }
    }
    dlogits
}
