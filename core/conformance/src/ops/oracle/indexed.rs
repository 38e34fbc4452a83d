//! `row_max`, `is_argmax`, `pick`, `one_hot` and `scale_trained` in f64.

use super::IGNORED;

/// The largest number of each row of `[T, width]`.
pub fn row_max(x: &[f64], width: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x.chunks_exact(width) {
        let mut most = row[0];
        for &x in row {
            if x > most {
                most = x;
            }
        }
        y.push(most);
    }
    y
}

/// 1 where the first largest number of a row is at its index.
pub fn is_argmax(x: &[f64], index: &[i32], width: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for (row, &index) in x.chunks_exact(width).zip(index) {
        let mut first = 0;
        for at in 1..width {
            if row[at] > row[first] {
                first = at;
            }
        }
        y.push(f64::from(first as i32 == index));
    }
    y
}

/// The number of each row at its index; 0 where that is -100.
pub fn pick(x: &[f64], index: &[i32], width: usize) -> Vec<f64> {
    let rows = x.chunks_exact(width).zip(index);
    let picked = rows.map(|(row, &index)| match index {
        IGNORED => 0.0,
        index => row[index as usize],
    });
    picked.collect()
}

/// 1 at the index of each row of `[T, width]`.
pub fn one_hot(index: &[i32], width: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for &index in index {
        for at in 0..width {
            y.push(f64::from(at as i32 == index));
        }
    }
    y
}

/// `factor x`, 0 in rows whose label is -100.
pub fn scale_trained(x: &[f64], labels: &[i32], factor: f64) -> Vec<f64> {
    let width = x.len().checked_div(labels.len()).unwrap_or(0);
    let mut y = Vec::new();
    for (at, x) in x.iter().enumerate() {
        y.push(match labels[at / width] {
            IGNORED => 0.0,
            _ => factor * x,
        });
    }
    y
}
