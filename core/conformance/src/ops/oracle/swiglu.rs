//! `swiglu`, `geglu_tanh` and their gradients in f64.

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

/// GELU by the hyperbolic tangent, and its derivative.
pub fn gelu_tanh(g: f64) -> [f64; 2] {
    let root = (2.0 / std::f64::consts::PI).sqrt();
    let inner = root * (g + 0.044715 * g.powi(3));
    // 1 + tanh(z), without loss of digits where z is far below 0.
    let above = 2.0 / (1.0 + (-2.0 * inner).exp());
    let bend = root * (1.0 + 3.0 * 0.044715 * g * g);
    let slope = 0.5 * above + 0.5 * g * above * (2.0 - above) * bend;
    [0.5 * g * above, slope]
}

/// `gelu(g) u`.
pub fn geglu_tanh(gate: &[f64], up: &[f64]) -> Vec<f64> {
    let pairs = gate.iter().zip(up);
    pairs.map(|(g, u)| gelu_tanh(*g)[0] * u).collect()
}

/// `dg = dy u gelu'(g)` and `du = dy gelu(g)`.
pub fn geglu_tanh_backward(dy: &[f64], gate: &[f64], up: &[f64]) -> [Vec<f64>; 2] {
    let (mut dgate, mut dup) = (Vec::new(), Vec::new());
    for i in 0..dy.len() {
        let [gelu, slope] = gelu_tanh(gate[i]);
        dgate.push(dy[i] * up[i] * slope);
        dup.push(dy[i] * gelu);
    }
    [dgate, dup]
}
