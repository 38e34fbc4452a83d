//! `sinusoids` and `swap_halves` in f64.

/// `amplitude_i f(position_t inv_freq_i)`, `[T, K]`.
pub fn sinusoids(
    positions: &[i32],
    inv_freq: &[f64],
    amplitude: &[f64],
    function: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let mut y = Vec::new();
    for &position in positions {
        for (f, a) in inv_freq.iter().zip(amplitude) {
            y.push(a * function(f64::from(position) * f));
        }
    }
    y
}

/// Each head of `head_dim` columns with its first `half` columns and the following ones exchanged.
pub fn swap_halves(x: &[f64], head_dim: usize, half: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for head in x.chunks_exact(head_dim) {
        for at in 0..head_dim {
            let from = match at {
                at if at < half => at + half,
                at if at < 2 * half => at - half,
                at => at,
            };
            y.push(head[from]);
        }
    }
    y
}
