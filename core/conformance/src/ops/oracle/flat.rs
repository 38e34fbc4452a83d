//! `sum_squares`, `first_not_finite` and `adamw` in f64.

/// `sum x^2`.
pub fn sum_squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

/// The index of the first NaN or infinity, or -1.
pub fn first_not_finite(x: &[f64]) -> f64 {
    let at = x.iter().position(|x| !x.is_finite());
    at.map_or(-1.0, |at| at as f64)
}

/// The scalars of `adamw`, in the op's order.
#[derive(Clone, Copy, Debug)]
pub struct AdamwStep {
    /// The step's learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The step's number, from 1.
    pub step: f64,
    /// Factor of the gradient.
    pub factor: f64,
}

/// One step of `torch.optim.AdamW`: param, first and second moment after it.
pub fn adamw(step: AdamwStep, gradient: &[f64], [param, m, v]: [&[f64]; 3]) -> [Vec<f64>; 3] {
    let mut after = [Vec::new(), Vec::new(), Vec::new()];
    let correction1 = 1.0 - step.beta1.powf(step.step);
    let correction2 = 1.0 - step.beta2.powf(step.step);
    for i in 0..gradient.len() {
        let g = gradient[i] * step.factor;
        let m = m[i] + (1.0 - step.beta1) * (g - m[i]);
        let v = step.beta2 * v[i] + (1.0 - step.beta2) * g * g;
        let kept = param[i] * (1.0 - step.learning_rate * step.weight_decay);
        let denominator = v.sqrt() / correction2.sqrt() + step.eps;
        after[0].push(kept - step.learning_rate / correction1 * m / denominator);
        after[1].push(m);
        after[2].push(v);
    }
    after
}
