//! `rope` and its transpose in f64.

/// What `rope` and its gradient do to a head.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// `K`.
    pub head_dim: usize,
    /// `K / 2` angular frequencies in radians per position; fewer where the rest of a head is
    /// copied.
    pub inv_freq: Vec<f64>,
    /// Factor of cosines and sines.
    pub scaling: f64,
}

/// Halves `x, x'` of each head become `x c - x' d` and `x' c + x d`, with `a = position
/// inv_freq_i`, `c = scaling cos a`, `d = scaling sin a`. x `[T, H K]`, positions `[T]`.
pub fn rope(x: &[f64], positions: &[i32], rotation: &Rotation) -> Vec<f64> {
    turned(x, positions, rotation, 1.0)
}

/// The transposed rotation of dy.
pub fn rope_backward(dy: &[f64], positions: &[i32], rotation: &Rotation) -> Vec<f64> {
    turned(dy, positions, rotation, -1.0)
}

fn turned(x: &[f64], positions: &[i32], rotation: &Rotation, sign: f64) -> Vec<f64> {
    let mut y = x.to_vec();
    let half = rotation.inv_freq.len();
    for (t, &position) in positions.iter().enumerate() {
        let width = x.len() / positions.len();
        for head in (t * width..(t + 1) * width).step_by(rotation.head_dim) {
            for i in 0..half {
                let angle = f64::from(position) * rotation.inv_freq[i];
                let c = rotation.scaling * angle.cos();
                let d = sign * rotation.scaling * angle.sin();
                let (first, second) = (x[head + i], x[head + half + i]);
                y[head + i] = first * c - second * d;
                y[head + half + i] = second * c + first * d;
            }
        }
    }
    y
}
