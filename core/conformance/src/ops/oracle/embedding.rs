//! `embedding` and its gradient in f64.

use espalier_interface::op::EmbeddingLayout;

/// The index of element `d` of token `token` in a table.
fn place(token: i32, d: usize, [vocab, width]: [usize; 2], layout: EmbeddingLayout) -> usize {
    match layout {
        EmbeddingLayout::ByRow => token as usize * width + d,
        EmbeddingLayout::ByColumn => d * vocab + token as usize,
    }
}

/// `y_t = W[token_t]`, `[T, D]`; `size` is `[V, D]`.
pub fn embedding(
    tokens: &[i32],
    weight: &[f64],
    size: [usize; 2],
    layout: EmbeddingLayout,
) -> Vec<f64> {
    let mut y = Vec::with_capacity(tokens.len() * size[1]);
    for &token in tokens {
        for d in 0..size[1] {
            y.push(weight[place(token, d, size, layout)]);
        }
    }
    y
}

/// `dW[token_t] += dy_t`, from zeros; `size` is `[V, D]`.
pub fn embedding_backward(
    dy: &[f64],
    tokens: &[i32],
    size: [usize; 2],
    layout: EmbeddingLayout,
) -> Vec<f64> {
    let mut dweight = vec![0.0; size[0] * size[1]];
    for (t, &token) in tokens.iter().enumerate() {
        for d in 0..size[1] {
            dweight[place(token, d, size, layout)] += dy[t * size[1] + d];
        }
    }
    dweight
}
