//! `rms_norm`, `rms_norm_offset` and their gradients in f64.

/// `1 / sqrt(mean(x^2) + eps)` of a group of columns.
pub fn inverse_rms(x: &[f64], eps: f64) -> f64 {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    1.0 / (mean + eps).sqrt()
}

/// `y = round(x r) w`, x `[T, D]`, weight `[G]`, each `G` of the `D` columns by themselves. `round`
/// is to the compute dtype.
pub fn rms_norm(x: &[f64], weight: &[f64], eps: f64, round: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for x in x.chunks_exact(weight.len()) {
        let r = inverse_rms(x, eps);
        for (x, weight) in x.iter().zip(weight) {
            y.push(round(x * r) * weight);
        }
    }
    y
}

/// `dx = r (g - x r^2 mean(g x))` with `g = dy w`.
pub fn rms_norm_backward(dy: &[f64], x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let group = weight.len();
    let mut dx = Vec::with_capacity(x.len());
    for (dy, x) in dy.chunks_exact(group).zip(x.chunks_exact(group)) {
        let r = inverse_rms(x, eps);
        let mut mean = 0.0;
        for i in 0..group {
            mean += dy[i] * weight[i] * x[i] / group as f64;
        }
        for i in 0..group {
            dx.push(r * (dy[i] * weight[i] - x[i] * r * r * mean));
        }
    }
    dx
}

/// `dw = sum_t dy_t round(x_t r_t)`, `[G]`; also over the groups of columns.
pub fn rms_norm_weight_backward(
    dy: &[f64],
    x: &[f64],
    group: usize,
    eps: f64,
    round: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let mut dweight = vec![0.0; group];
    for (dy, x) in dy.chunks_exact(group).zip(x.chunks_exact(group)) {
        let r = inverse_rms(x, eps);
        for i in 0..group {
            dweight[i] += dy[i] * round(x[i] * r);
        }
    }
    dweight
}

/// `y = x r (offset + w)`, in the shapes of [`rms_norm`].
pub fn rms_norm_offset(x: &[f64], weight: &[f64], eps: f64, offset: f64) -> Vec<f64> {
    let factors: Vec<f64> = weight.iter().map(|w| offset + w).collect();
    rms_norm(x, &factors, eps, |normal| normal)
}

/// `dx = r (g - x r^2 mean(g x))` with `g = dy (offset + w)`.
pub fn rms_norm_offset_backward(
    dy: &[f64],
    x: &[f64],
    weight: &[f64],
    eps: f64,
    offset: f64,
) -> Vec<f64> {
    let factors: Vec<f64> = weight.iter().map(|w| offset + w).collect();
    rms_norm_backward(dy, x, &factors, eps)
}
