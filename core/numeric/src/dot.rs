//! Two lists of numbers -> their dot product.

/// Parallel sums: a fixed number, so that no bit depends on the vector width.
const LANES: usize = 8;

/// The sum of `a[i] * b[i]`, in f64.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (a_rows, a_rest) = a.as_chunks::<LANES>();
    let (b_rows, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_rows.iter().zip(b_rows) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest = a_rest.iter().zip(b_rest);
    let rest: f64 = rest.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::dot;

    #[test]
    fn every_element_counts_once() {
        for len in [0, 1, 8, 19] {
            let numbers: Vec<f32> = (1..=len).map(|x| x as f32).collect();
            let squares = len * (len + 1) * (2 * len + 1) / 6;
            assert_eq!(dot(&numbers, &numbers), f64::from(squares));
        }
        // Only f64 holds both: the sum of f32 numbers would be 0.
        assert_eq!(dot(&[3.0e7, 1.0, -3.0e7], &[3.0e7, 1.0, 3.0e7]), 1.0);
    }
}
