//! `exp`, `log`, `sigmoid` and `rsqrt` in f64.

/// `e^x`.
pub fn exp(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x.exp()).collect()
}

/// `ln x`.
pub fn log(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x.ln()).collect()
}

/// `1 / (1 + e^-x)`.
pub fn sigmoids(x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| super::sigmoid(x)).collect()
}

/// `1 / sqrt(alpha x + beta)`.
pub fn rsqrt(x: &[f64], alpha: f64, beta: f64) -> Vec<f64> {
    x.iter().map(|x| 1.0 / (alpha * x + beta).sqrt()).collect()
}
