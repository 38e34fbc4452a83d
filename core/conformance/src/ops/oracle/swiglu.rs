//! `swiglu` and its gradients in f64.

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `g s u` with `s = sigmoid(g)`.
pub fn swiglu(gate: &[f64], up: &[f64]) -> Vec<f64> {
    let pairs = gate.iter().zip(up);
    pairs.map(|(g, u)| g * sigmoid(*g) * u).collect()
}

/// `dg = dy u s (1 + g (1 - s))` and `du = dy g s`.
pub fn swiglu_backward(dy: &[f64], gate: &[f64], up: &[f64]) -> [Vec<f64>; 2] {
    let (mut dgate, mut dup) = (Vec::new(), Vec::new());
    for i in 0..dy.len() {
        let s = sigmoid(gate[i]);
        dgate.push(dy[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s)));
        dup.push(dy[i] * gate[i] * s);
    }
    [dgate, dup]
}
