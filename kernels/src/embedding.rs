//! Token ids -> rows of a table, and their gradients -> the table's gradient.
//!
//! `y_t = W[token_t]`; `dW[v] += sum over t with token_t = v of dy_t`, tokens in order.
#![allow(unsafe_code)] // Disjoint column blocks of the rows of a gradient.

use espalier_interface::{PluginError, Result, Services};

use crate::element::{Element, convert, convert_real};
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
    if tokens.is_empty() {
        return Ok(());
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

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

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

    #[test]
    fn a_token_outside_the_vocabulary_is_named() {
        let mut y = [0.0f32; 4];
        let e = embedding(&Serial, &[0.0f32; 6], 3, Table::Rows, &[1, 3], &mut y).unwrap_err();
        assert!(e.message.starts_with("token 3 at index 1"), "{e}");
        assert!(embedding(&Serial, &[0.0f32; 6], 3, Table::Rows, &[-1, 2], &mut y).is_err());
    }
}
