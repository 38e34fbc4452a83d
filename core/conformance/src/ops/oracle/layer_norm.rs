//! `layer_norm` and its gradients in f64.

/// The mean of a row, and `1 / sqrt(variance + eps)`.
pub fn moments(x: &[f64], eps: f64) -> [f64; 2] {
    let count = x.len() as f64;
    let mean = x.iter().sum::<f64>() / count;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    [mean, 1.0 / (variance + eps).sqrt()]
}

/// `y = (x - m) r w + b`, x `[T, D]`, weight and bias `[D]`.
pub fn layer_norm(x: &[f64], weight: &[f64], bias: Option<&[f64]>, eps: f64) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for x in x.chunks_exact(weight.len()) {
        let [mean, r] = moments(x, eps);
        for i in 0..x.len() {
            let shift = bias.map_or(0.0, |bias| bias[i]);
            y.push((x[i] - mean) * r * weight[i] + shift);
        }
    }
    y
}

/// `dx = r (g - mean(g) - n mean(g n))` with `g = dy w` and `n = (x - m) r`.
pub fn layer_norm_backward(dy: &[f64], x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let width = weight.len();
    let mut dx = Vec::with_capacity(x.len());
    for (dy, x) in dy.chunks_exact(width).zip(x.chunks_exact(width)) {
        let [mean, r] = moments(x, eps);
        let (mut level, mut pull) = (0.0, 0.0);
        for i in 0..width {
            level += dy[i] * weight[i] / width as f64;
            pull += dy[i] * weight[i] * (x[i] - mean) * r / width as f64;
        }
        for i in 0..width {
            dx.push(r * (dy[i] * weight[i] - level - (x[i] - mean) * r * pull));
        }
    }
    dx
}

/// `dw = sum_t dy_t n_t`, `[D]`.
pub fn layer_norm_weight_backward(dy: &[f64], x: &[f64], width: usize, eps: f64) -> Vec<f64> {
    let mut dweight = vec![0.0; width];
    for (dy, x) in dy.chunks_exact(width).zip(x.chunks_exact(width)) {
        let [mean, r] = moments(x, eps);
        for i in 0..width {
            dweight[i] += dy[i] * (x[i] - mean) * r;
        }
    }
    dweight
}
