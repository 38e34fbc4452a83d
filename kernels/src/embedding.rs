//! Token ids -> rows of a table, and their gradients -> the table's gradient.
//!
//! `y_t = W[token_t]`; `dW[v] += sum over t with token_t = v of dy_t`, tokens in order.
#![allow(unsafe_code)] // Disjoint column blocks of the rows of a gradient.

use espalier_interface::{PluginError, Result, Services};

use crate::element::{Element, Real, convert, convert_real};
use crate::simd::vectorized;
use crate::split::{Parts, chunks_mut, rows_per_chunk};

/// Columns of the table's gradient that one thread adds to.
const COLUMNS: usize = 256;

/// The layout of an embedding's table in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `[V, D]`: a token's embedding is a row.
    Rows,
    /// `[D, V]`: a token's embedding is a column, as in PEFT's `lora_embedding_A`, `[R, V]`.
    Columns,
}

/// `Ok` where every token is in `0..vocab`.
///
/// # Errors
/// The first token outside `0..vocab`.
pub fn check_tokens(tokens: &[i32], vocab: usize) -> Result<()> {
    match tokens
        .iter()
        .position(|&token| token < 0 || token as usize >= vocab)
    {
        None => Ok(()),
        Some(at) => Err(PluginError::invalid(format!(
            "token {} at index {at} of the batch is not in the vocabulary of {vocab}; \
             the data was tokenized for another model",
            tokens[at]
        ))),
    }
}

/// Writes `y_t = W[token_t]`.
///
/// # Shapes
/// `weight`: `[V, D]` or `[D, V]` by `table`, in any float dtype; `tokens`: `[T]`; `y`: `[T, D]`.
///
/// # Errors
/// A token outside `0..vocab`.
pub fn embedding<W: Element, E: Element>(
    services: &dyn Services,
    weight: &[W],
    vocab: usize,
    table: Table,
    tokens: &[i32],
    y: &mut [E],
) -> Result<()> {
    check_tokens(tokens, vocab)?;
    if tokens.is_empty() {
        return Ok(());
    }
    let width = y.len() / tokens.len();
    assert!(
        y.len() == tokens.len() * width,
        "embedding: rows are not whole"
    );
    assert!(
        weight.len() == vocab * width,
        "embedding: the table's shape disagrees"
    );
    if width == 0 {
        return Ok(());
    }
    let rows = rows_per_chunk(width);
    chunks_mut(services, y, rows * width, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let tokens = &tokens[start / width..];
                for (y, &token) in y.chunks_exact_mut(width).zip(tokens) {
                    let token = token as usize;
                    match table {
                        Table::Rows => {
                            let row = &weight[token * width..(token + 1) * width];
                            y.iter_mut().zip(row).for_each(|(y, &w)| *y = convert(w));
                        }
                        Table::Columns => {
                            let column = weight[token..].iter().step_by(vocab);
                            y.iter_mut().zip(column).for_each(|(y, &w)| *y = convert(w));
                        }
                    }
                }
            },
        );
    });
    Ok(())
}

/// Adds the table's gradient, `dW[token_t] += dy_t` in the order of `t`.
///
/// # Shapes
/// `dy`: `[T, D]`; `tokens`: `[T]`; `dweight`: `[V, D]` or `[D, V]` by `table`.
///
/// # Errors
/// A token outside `0..vocab`.
pub fn embedding_backward<E: Element, G: Element>(
    services: &dyn Services,
    dy: &[E],
    tokens: &[i32],
    vocab: usize,
    table: Table,
    dweight: &mut [G],
) -> Result<()> {
    check_tokens(tokens, vocab)?;
    let Some(width) = width_of_gradient(dy, tokens, vocab, dweight) else {
        return Ok(());
    };
    match table {
        Table::Rows => {
            let parts = Parts::new(dweight);
            services.parallel_for(width.div_ceil(COLUMNS), &|block| {
                let first = block * COLUMNS;
                let columns = COLUMNS.min(width - first);
                for (t, &token) in tokens.iter().enumerate() {
                    let dy = &dy[t * width + first..t * width + first + columns];
                    // SAFETY: each call of the body touches its own columns, one row at a time.
                    let row = unsafe { parts.part(token as usize * width + first, columns) };
                    for (dw, &dy) in row.iter_mut().zip(dy) {
                        *dw = G::store(dw.load() + convert_real(dy.load()));
                    }
                }
            });
        }
        Table::Columns => chunks_mut(services, dweight, vocab, |start, row| {
            let column = start / vocab;
            for (&token, dy) in tokens.iter().zip(dy[column..].iter().step_by(width)) {
                let dw = &mut row[token as usize];
                *dw = G::store(dw.load() + convert_real(dy.load()));
            }
        }),
    }
    Ok(())
}

/// Elements of a token's gradient; none without tokens.
fn width_of_gradient<E, G>(dy: &[E], tokens: &[i32], vocab: usize, dweight: &[G]) -> Option<usize> {
    if tokens.is_empty() {
        return None;
    }
    let width = dy.len() / tokens.len();
    assert!(
        dy.len() == tokens.len() * width,
        "embedding_backward: rows are not whole"
    );
    assert!(
        dweight.len() == vocab * width,
        "embedding_backward: the table's shape disagrees"
    );
    Some(width)
}

/// As [`embedding_backward`], for a gradient that is narrower than sums: what a token's occurrences
/// add is summed in order first, so that it is rounded once. `order` has room for a number a token.
///
/// # Errors
/// A token outside `0..vocab`.
pub fn narrow_embedding_backward<E: Element, G: Element>(
    services: &dyn Services,
    dy: &[E],
    (tokens, order): (&[i32], &mut [i32]),
    vocab: usize,
    table: Table,
    dweight: &mut [G],
) -> Result<()> {
    check_tokens(tokens, vocab)?;
    let Some(width) = width_of_gradient(dy, tokens, vocab, dweight) else {
        return Ok(());
    };
    assert!(
        order.len() == tokens.len() && i32::try_from(tokens.len()).is_ok(),
        "embedding_backward: the order has another length"
    );
    (0..).zip(&mut *order).for_each(|(t, place)| *place = t);
    // Places with equal tokens one after the other, each in their order.
    order.sort_unstable_by_key(|&t| (tokens[t as usize], t));
    let order = &*order;
    let parts = Parts::new(dweight);
    services.parallel_for(width.div_ceil(COLUMNS), &|block| {
        let first = block * COLUMNS;
        let columns = COLUMNS.min(width - first);
        for equal in order.chunk_by(|&a, &b| tokens[a as usize] == tokens[b as usize]) {
            let token = tokens[equal[0] as usize] as usize;
            let mut sums = [G::Acc::ZERO; COLUMNS];
            for &t in equal {
                let dy = &dy[t as usize * width + first..][..columns];
                for (sum, &dy) in sums.iter_mut().zip(dy) {
                    *sum += convert_real(dy.load());
                }
            }
            for (column, &sum) in sums[..columns].iter().enumerate() {
                let at = match table {
                    Table::Rows => token * width + first + column,
                    Table::Columns => (first + column) * vocab + token,
                };
                // SAFETY: each call of the body touches its own columns, one element at a time.
                let dw = unsafe { &mut parts.part(at, 1)[0] };
                *dw = G::store(dw.load() + sum);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;
    use half::bf16;

    use super::*;
    use crate::check;

    const TOKENS: [i32; 5] = [2, 0, 2, 6, 2];

    #[test]
    fn both_tables_look_up_and_differentiate() {
        let (vocab, d) = (7, 3);
        let rows = check::numbers(vocab * d, 1);
        let columns: Vec<f64> = (0..d * vocab)
            .map(|i| rows[i % vocab * d + i / vocab])
            .collect();
        let dy = check::numbers(TOKENS.len() * d, 2);
        for (table, weight) in [(Table::Rows, &rows), (Table::Columns, &columns)] {
            let forward = |w: &[f64]| {
                let mut y = vec![0.0f64; TOKENS.len() * d];
                embedding(&Serial, w, vocab, table, &TOKENS, &mut y).unwrap();
                y
            };
            assert_eq!(forward(weight)[d..2 * d], rows[..d]);
            assert_eq!(forward(weight)[3 * d..4 * d], rows[6 * d..]);
            let mut dw = vec![0.0f64; vocab * d];
            embedding_backward(&Serial, &dy, &TOKENS, vocab, table, &mut dw).unwrap();
            check::gradient(|w| check::dot(&forward(w), &dy), weight, &dw);
        }
    }

    #[test]
    fn threads_agree() {
        let (vocab, d) = (7, 1000);
        let dy = check::floats(&check::numbers(TOKENS.len() * d, 2));
        for table in [Table::Rows, Table::Columns] {
            check::same_on_two_threads(|services| {
                let mut dw = vec![0.0f32; vocab * d];
                embedding_backward(services, &dy, &TOKENS, vocab, table, &mut dw).unwrap();
                dw
            });
        }
    }

    /// Of bf16 a running sum of ones stays at 256; here it is rounded once.
    #[test]
    fn what_a_token_adds_to_a_narrow_gradient_is_summed_first() {
        let (vocab, d) = (3, COLUMNS + 5);
        let tokens: Vec<i32> = (0..900).map(|t| [2, 0, 2][t % 3]).collect();
        let dy = vec![bf16::ONE; tokens.len() * d];
        for table in [Table::Rows, Table::Columns] {
            check::same_on_two_threads(|services| {
                let mut order = vec![0; tokens.len()];
                let mut dw = vec![bf16::from_f32(8.0); vocab * d];
                let given = (&tokens[..], &mut order[..]);
                narrow_embedding_backward(services, &dy, given, vocab, table, &mut dw).unwrap();
                let at = |token: usize, column: usize| match table {
                    Table::Rows => dw[token * d + column],
                    Table::Columns => dw[column * vocab + token],
                };
                for column in [0, 1, COLUMNS, d - 1] {
                    let found = [0, 1, 2].map(|token| at(token, column).to_f32());
                    assert_eq!(found, [308.0, 8.0, 608.0]);
                }
                dw
            });
        }
        let gone = narrow_embedding_backward(
            &Serial,
            &dy[..d],
            (&[3], &mut [0]),
            vocab,
            Table::Rows,
            &mut vec![bf16::ZERO; vocab * d],
        );
        assert!(gone.is_err_and(|e| e.message.starts_with("token 3 at index 0")));
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_named() {
        let mut y = [0.0f32; 4];
        let e = embedding(&Serial, &[0.0f32; 6], 3, Table::Rows, &[1, 3], &mut y).unwrap_err();
        assert!(e.message.starts_with("token 3 at index 1"), "{e}");
        assert!(embedding(&Serial, &[0.0f32; 6], 3, Table::Rows, &[-1, 2], &mut y).is_err());
    }
}
