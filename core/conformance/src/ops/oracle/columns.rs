//! `slice_columns` and its gradient.

/// Columns `first` to `first + width` of rows of `of` columns.
pub fn slice_columns(x: &[f64], [first, width, of]: [usize; 3]) -> Vec<f64> {
    let rows = x.chunks_exact(of);
    rows.flat_map(|row| row[first..first + width].to_vec())
        .collect()
}

/// `dy` in those columns, 0 in the others, and `added` to both.
pub fn slice_columns_backward(
    dy: &[f64],
    added: Option<&[f64]>,
    [first, width, of]: [usize; 3],
) -> Vec<f64> {
    let mut dx = Vec::new();
    for t in 0..dy.len() / width {
        for c in 0..of {
            let own = match c.checked_sub(first) {
                Some(at) if at < width => dy[t * width + at],
                _ => 0.0,
            };
            dx.push(own + added.map_or(0.0, |added| added[t * of + c]));
        }
    }
    dx
}
