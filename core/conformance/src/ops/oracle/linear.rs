//! `linear` and its gradients in f64.

/// `y = x W^T (+ bias)`, `[T, N]`: x `[T, M]`, weight `[N, M]`, bias `[N]`.
pub fn linear(x: &[f64], weight: &[f64], bias: Option<&[f64]>, [n, m]: [usize; 2]) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len() / m * n);
    for x in x.chunks_exact(m) {
        for (row, weight) in weight.chunks_exact(m).enumerate() {
            let mut sum = bias.map_or(0.0, |bias| bias[row]);
            for i in 0..m {
                sum += x[i] * weight[i];
            }
            y.push(sum);
        }
    }
    y
}

/// `dx = dy W`, `[T, M]`: dy `[T, N]`, weight `[N, M]`.
pub fn linear_input_backward(dy: &[f64], weight: &[f64], [n, m]: [usize; 2]) -> Vec<f64> {
    let mut dx = vec![0.0; dy.len() / n * m];
    for (dy, dx) in dy.chunks_exact(n).zip(dx.chunks_exact_mut(m)) {
        for (dy, weight) in dy.iter().zip(weight.chunks_exact(m)) {
            for i in 0..m {
                dx[i] += dy * weight[i];
            }
        }
    }
    dx
}

/// `dW = dy^T x`, `[N, M]`: dy `[T, N]`, x `[T, M]`.
pub fn linear_weight_backward(dy: &[f64], x: &[f64], [n, m]: [usize; 2]) -> Vec<f64> {
    let mut dweight = vec![0.0; n * m];
    for (dy, x) in dy.chunks_exact(n).zip(x.chunks_exact(m)) {
        for (dy, dweight) in dy.iter().zip(dweight.chunks_exact_mut(m)) {
            for i in 0..m {
                dweight[i] += dy * x[i];
            }
        }
    }
    dweight
}

/// `dbias = sum_t dy_t`, `[N]`: dy `[T, N]`.
pub fn bias_backward(dy: &[f64], n: usize) -> Vec<f64> {
    let mut dbias = vec![0.0; n];
    for (at, dy) in dy.iter().enumerate() {
        dbias[at % n] += dy;
    }
    dbias
}
