//! A weight and its decoded values -> how far they are apart.

/// Parallel sums: a fixed number, so that no bit depends on the vector width.
const LANES: usize = 8;

/// Sums over some elements of a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorSums {
    /// Of `(decoded - dense)^2`.
    pub squared_error: f64,
    /// Of `dense^2`.
    pub squared_norm: f64,
    /// The largest `|decoded - dense|`.
    pub largest_error: f64,
}

impl ErrorSums {
    /// The sums of `dense` and its decoded values, in a fixed order.
    pub fn of(dense: &[f32], decoded: &[f32]) -> Self {
        let (mut errors, mut norms, mut largest) = ([0.0; LANES], [0.0; LANES], [0.0f64; LANES]);
        let mut add = |lane: usize, dense: f32, decoded: f32| {
            let (dense, decoded) = (f64::from(dense), f64::from(decoded));
            let error = decoded - dense;
            errors[lane] += error * error;
            norms[lane] += dense * dense;
            largest[lane] = largest[lane].max(error.abs());
        };
        let (dense_rows, dense_rest) = dense.as_chunks::<LANES>();
        let (decoded_rows, decoded_rest) = decoded.as_chunks::<LANES>();
        for (dense, decoded) in dense_rows.iter().zip(decoded_rows) {
            for lane in 0..LANES {
                add(lane, dense[lane], decoded[lane]);
            }
        }
        for (lane, (&dense, &decoded)) in dense_rest.iter().zip(decoded_rest).enumerate() {
            add(lane, dense, decoded);
        }
        let lanes = (0..LANES).map(|lane| ErrorSums {
            squared_error: errors[lane],
            squared_norm: norms[lane],
            largest_error: largest[lane],
        });
        lanes.fold(ErrorSums::default(), ErrorSums::and)
    }

    /// The sums over the elements of both.
    #[must_use]
    pub fn and(self, other: ErrorSums) -> Self {
        ErrorSums {
            squared_error: self.squared_error + other.squared_error,
            squared_norm: self.squared_norm + other.squared_norm,
            largest_error: self.largest_error.max(other.largest_error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_elements() {
        let dense: Vec<f32> = (0..19).map(|i| i as f32 - 9.0).collect();
        let decoded: Vec<f32> = dense.iter().map(|x| x + 0.5 * (x.abs() - 1.0)).collect();
        let sums = ErrorSums::of(&dense, &decoded);
        assert_eq!(sums.squared_norm, 2.0 * 285.0);
        // 0.25 (|x| - 1)^2, twice for 1 to 9 and once for 0.
        assert_eq!(sums.squared_error, 0.25 * (2.0 * 204.0 + 1.0));
        assert_eq!(sums.largest_error, 4.0);
    }
}
