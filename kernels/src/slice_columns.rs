//! Rows -> some of their columns, and the gradient of the rows.

use espalier_interface::Services;

use crate::added::Added;
use crate::element::{Element, Real};
use crate::split::{chunks_mut, rows_per_chunk};

/// Neighbouring columns of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The first one.
    pub first: usize,
    /// How many.
    pub width: usize,
    /// Columns of a whole row.
    pub of: usize,
}

impl Columns {
    /// The columns' numbers of a row.
    fn within(self) -> std::ops::Range<usize> {
        self.first..self.first + self.width
    }

    /// Checks two runs of whole rows, of these columns and of all.
    fn check(self, part: usize, whole: usize) {
        assert!(
            self.width > 0 && self.first + self.width <= self.of,
            "slice_columns: the columns are not in the row"
        );
        assert!(
            whole.is_multiple_of(self.of) && part == whole / self.of * self.width,
            "slice_columns: shapes disagree"
        );
    }
}

/// Copies the columns.
///
/// # Shapes
/// `x`: `[T, of]`; `y`: `[T, width]`.
pub fn slice_columns<E: Element>(services: &dyn Services, columns: Columns, x: &[E], y: &mut [E]) {
    columns.check(y.len(), x.len());
    let Columns { width, of, .. } = columns;
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        let x = x[start / width * of..].chunks_exact(of);
        for (x, y) in x.zip(y.chunks_exact_mut(width)) {
            y.copy_from_slice(&x[columns.within()]);
        }
    });
}

/// Writes `dy` in the columns and 0 in the others, or as `added` says the rounded sum of that and
/// other values.
///
/// # Shapes
/// `dy`: `[T, width]`; `dx` and what is added: `[T, of]`.
pub fn slice_columns_backward<E: Element>(
    services: &dyn Services,
    columns: Columns,
    dy: &[E],
    added: Added<'_, E>,
    dx: &mut [E],
) {
    columns.check(dy.len(), dx.len());
    assert!(
        added.fits(dx.len()),
        "slice_columns_backward: what is added has another shape"
    );
    let Columns { width, of, .. } = columns;
    chunks_mut(services, dx, rows_per_chunk(of) * of, |start, dx| {
        let dy = dy[start / of * width..].chunks_exact(width);
        for ((row, dy), dx) in dy.enumerate().zip(dx.chunks_exact_mut(of)) {
            match added {
                Added::Nothing => {
                    dx.fill(E::store(E::Acc::ZERO));
                    dx[columns.within()].copy_from_slice(dy);
                    continue;
                }
                Added::Values(values) => dx.copy_from_slice(&values[start + row * of..][..of]),
                Added::Output => {}
            }
            for (dx, dy) in dx[columns.within()].iter_mut().zip(dy) {
                *dx = E::store(dx.load() + dy.load());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    const COLUMNS: Columns = Columns {
        first: 3,
        width: 70,
        of: 131,
    };

    #[test]
    fn the_gradient_is_the_difference_and_threads_agree() {
        let t = 400;
        let (x, dy) = (check::numbers(t * 131, 1), check::numbers(t * 70, 2));
        let forward = |services: &dyn Services, x: &[f64]| {
            let mut y = vec![0.0; t * 70];
            slice_columns(services, COLUMNS, x, &mut y);
            y
        };
        check::same_on_two_threads(|services| forward(services, &x));
        let y = forward(&Serial, &x);
        assert_eq!((y[0], y[70 + 69]), (x[3], x[131 + 72]));
        let gradient = |services: &dyn Services, added: Added<'_, f64>, start: &[f64]| {
            let mut dx = start.to_vec();
            slice_columns_backward(services, COLUMNS, &dy, added, &mut dx);
            dx
        };
        let nothing = vec![f64::NAN; t * 131];
        check::same_on_two_threads(|services| gradient(services, Added::Nothing, &nothing));
        let dx = gradient(&Serial, Added::Nothing, &nothing);
        // The slice is linear: its gradient is its transpose.
        let sides = [check::dot(&y, &dy), check::dot(&x, &dx)];
        assert!((sides[0] - sides[1]).abs() < 1e-9, "{sides:?}");
        assert!(dx.iter().filter(|d| **d == 0.0).count() >= t * 61);
        let sum: Vec<f64> = dx.iter().zip(&x).map(|(d, x)| x + d).collect();
        assert_eq!(gradient(&Serial, Added::Values(&x), &nothing), sum);
        assert_eq!(gradient(&Serial, Added::Output, &x), sum);
    }
}
