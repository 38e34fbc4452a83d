//! `add`, `mul`, `div`, `scale` and `scale_channels` in f64. `scale_by` is as `scale_channels`.

/// `a + alpha b`.
pub fn add(a: &[f64], b: &[f64], alpha: f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + alpha * b).collect()
}

/// `a b`.
pub fn mul(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

/// `a / b`.
pub fn div(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

/// `alpha a`.
pub fn scale(a: &[f64], alpha: f64) -> Vec<f64> {
    a.iter().map(|a| alpha * a).collect()
}

/// `y_tn = x_tn w_n`, x `[T, N]`.
pub fn scale_channels(x: &[f64], weight: &[f64]) -> Vec<f64> {
    x.iter()
        .zip(weight.iter().cycle())
        .map(|(x, w)| x * w)
        .collect()
}

/// `dw_n = sum_t dy_tn x_tn`, dy and x `[T, N]`.
pub fn scale_channels_weight_backward(dy: &[f64], x: &[f64], channels: usize) -> Vec<f64> {
    let mut dweight = vec![0.0; channels];
    for (at, (dy, x)) in dy.iter().zip(x).enumerate() {
        dweight[at % channels] += dy * x;
    }
    dweight
}
