//! Rows and an index each -> the value at the index; the largest of a row; trained rows.
//!
//! The index -100 stands for none.

use espalier_interface::{PluginError, Result, Services};

use crate::cross_entropy::IGNORED;
use crate::element::{Element, Real};
use crate::lanes;
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_per_chunk};

/// Writes the largest number of each row.
///
/// # Shapes
/// `x`: `[T, N]`; `y`: `[T]`.
pub fn row_max<E: Element>(services: &dyn Services, x: &[E], y: &mut [E]) {
    let width = width(x.len(), y.len());
    chunks_mut(services, y, rows_per_chunk(width), |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let rows = x[start * width..].chunks_exact(width);
                for (y, row) in y.iter_mut().zip(rows) {
                    *y = E::store(lanes::max(row));
                }
            },
        );
    });
}

/// Writes 1 where the first largest number of a row is at its index, else 0.
///
/// # Shapes
/// `x`: `[T, N]`; `index`, `y`: `[T]`.
pub fn is_argmax<E: Element>(services: &dyn Services, x: &[E], index: &[i32], y: &mut [i32]) {
    let width = width(x.len(), y.len());
    assert!(index.len() == y.len(), "is_argmax: shapes disagree");
    chunks_mut(services, y, rows_per_chunk(width), |start, y| {
        let rows = x[start * width..].chunks_exact(width);
        for ((y, row), &index) in y.iter_mut().zip(rows).zip(&index[start..]) {
            let max = lanes::max(row);
            let first = row.iter().position(|x| x.load() == max);
            *y = i32::from(first.is_some_and(|first| first as i64 == i64::from(index)));
        }
    });
}

/// Writes the number of each row at its index, 0 where that is -100.
///
/// # Shapes
/// `x`: `[T, N]`; `index`, `y`: `[T]`.
///
/// # Errors
/// The first index that is neither -100 nor in `0..N`.
pub fn pick<E: Element>(
    services: &dyn Services,
    x: &[E],
    index: &[i32],
    y: &mut [E],
) -> Result<()> {
    let width = width(x.len(), y.len());
    assert!(index.len() == y.len(), "pick: shapes disagree");
    check_index(index, width)?;
    chunks_mut(services, y, rows_per_chunk(1), |start, y| {
        let rows = x[start * width..].chunks_exact(width);
        for ((y, row), &index) in y.iter_mut().zip(rows).zip(&index[start..]) {
            *y = match index {
                IGNORED => E::store(E::Acc::ZERO),
                index => row[index as usize],
            };
        }
    });
    Ok(())
}

/// Writes 1 at the index of each row and 0 elsewhere; 0 everywhere where it is -100.
///
/// # Shapes
/// `index`: `[T]`; `y`: `[T, N]`.
///
/// # Errors
/// As [`pick`].
pub fn one_hot<E: Element>(services: &dyn Services, index: &[i32], y: &mut [E]) -> Result<()> {
    let width = width(y.len(), index.len());
    check_index(index, width)?;
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        let rows = y.chunks_exact_mut(width);
        for (row, &index) in rows.zip(&index[start / width..]) {
            row.fill(E::store(E::Acc::ZERO));
            if index != IGNORED {
                row[index as usize] = E::store(E::Acc::ONE);
            }
        }
    });
    Ok(())
}

/// Writes `factor x`, and 0 in rows whose label is -100.
///
/// # Shapes
/// `x`, `y`: `[T, N]`; `labels`: `[T]`.
pub fn scale_trained<E: Element>(
    services: &dyn Services,
    x: &[E],
    labels: &[i32],
    factor: f64,
    y: &mut [E],
) {
    assert!(x.len() == y.len(), "scale_trained: shapes disagree");
    let (width, factor) = (width(y.len(), labels.len()), E::Acc::from_f64(factor));
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let rows = x[start..]
                    .chunks_exact(width)
                    .zip(y.chunks_exact_mut(width));
                for ((x, y), &label) in rows.zip(&labels[start / width..]) {
                    if label == IGNORED {
                        y.fill(E::store(E::Acc::ZERO));
                        continue;
                    }
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = E::store(factor * x.load());
                    }
                }
            },
        );
    });
}

/// Columns of `elements` numbers in `rows` rows; 1 where there is no row.
///
/// # Panics
/// Where the rows are not whole.
fn width(elements: usize, rows: usize) -> usize {
    let width = elements.checked_div(rows).unwrap_or(1).max(1);
    assert!(elements == rows * width, "rows are not whole");
    width
}

fn check_index(index: &[i32], width: usize) -> Result<()> {
    let wrong = |&index: &i32| index != IGNORED && (index < 0 || index as usize >= width);
    match index.iter().position(wrong) {
        None => Ok(()),
        Some(at) => Err(PluginError::invalid(format!(
            "index {} at token {at} of the batch is neither one of {width} columns nor -100",
            index[at]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    #[test]
    fn each_row_gives_what_stands_at_its_index() {
        let x = [1.0f32, 3.0, 3.0, -1.0, -2.0, f32::NAN];
        let (mut most, mut first, mut picked) = ([0.0; 2], [7; 2], [7.0; 2]);
        row_max(&Serial, &x[..4], &mut most);
        assert_eq!(most, [3.0, 3.0]);
        is_argmax(&Serial, &x[..4], &[1, 1], &mut first);
        assert_eq!(first, [1, 0]);
        pick(&Serial, &x, &[2, -100], &mut picked).expect("both are known");
        assert_eq!(picked, [3.0, 0.0]);
        let mut hot = [7.0f32; 6];
        one_hot(&Serial, &[2, -100], &mut hot).expect("both are known");
        assert_eq!(hot, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        let mut scaled = [7.0f32; 6];
        scale_trained(&Serial, &x, &[0, -100], 0.5, &mut scaled);
        assert_eq!(scaled, [0.5, 1.5, 1.5, 0.0, 0.0, 0.0]);
        for wrong in [3, -1] {
            let error = pick(&Serial, &x, &[0, wrong], &mut picked).expect_err("no column");
            assert!(error.message.contains("at token 1"), "{error}");
            assert!(one_hot(&Serial, &[0, wrong], &mut hot).is_err());
        }
        row_max::<f32>(&Serial, &[], &mut []);
        pick::<f32>(&Serial, &[], &[], &mut []).expect("no row");
    }

    #[test]
    fn threads_agree() {
        let (t, n) = (300, 130);
        let x = check::floats(&check::numbers(t * n, 1));
        let index: Vec<i32> = (0..t as i32).map(|t| t % 100).collect();
        check::same_on_two_threads(|services| {
            let (mut most, mut first, mut picked) = (vec![0f32; t], vec![0; t], vec![0f32; t]);
            row_max(services, &x, &mut most);
            is_argmax(services, &x, &index, &mut first);
            pick(services, &x, &index, &mut picked).expect("columns");
            let (mut hot, mut scaled) = (vec![0f32; t * n], vec![0f32; t * n]);
            one_hot(services, &index, &mut hot).expect("columns");
            scale_trained(services, &x, &index, 0.3, &mut scaled);
            (most, first, picked, hot, scaled)
        });
    }
}
