//! `expand`, `contract` and `broadcast_param` in f64.

/// The column of `[T, M]` of which `expand` makes column `at` of `[T, M R L]`.
fn source(at: usize, columns: usize, repeat: usize) -> usize {
    at / repeat % columns
}

/// Each of the `columns` columns of a row `repeat` times, the row `tile` times.
pub fn expand(x: &[f64], columns: usize, [repeat, tile]: [usize; 2]) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks_exact(columns) {
        for at in 0..columns * repeat * tile {
            y.push(row[source(at, columns, repeat)]);
        }
    }
    y
}

/// The sums of the columns that `expand` makes of each of `columns` columns.
pub fn contract(x: &[f64], columns: usize, [repeat, tile]: [usize; 2]) -> Vec<f64> {
    let width = columns * repeat * tile;
    let mut y = vec![0.0; x.len() / width * columns];
    for (at, x) in x.iter().enumerate() {
        y[at / width * columns + source(at % width, columns, repeat)] += x;
    }
    y
}

/// `rows` rows of the weight, `tile` times in each.
pub fn broadcast_param(weight: &[f64], rows: usize, tile: usize) -> Vec<f64> {
    let all = weight.iter().cycle().take(weight.len() * rows * tile);
    all.copied().collect()
}
