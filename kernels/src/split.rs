//! Output slices -> disjoint chunks that the host's threads fill, cut by shape alone.
#![allow(unsafe_code)] // Disjoint mutable chunks of one slice on several threads.

use std::marker::PhantomData;

use espalier_interface::Services;

/// Fewest elements of elementwise work for a separate task.
pub const CHUNK: usize = 16_384;

/// A mutable slice that is split into disjoint chunks for threads.
pub struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Parts` only returns chunks whose disjointness the caller of `part` promises, so it is
// as sendable as the elements themselves.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Splits `slice`.
    pub fn new(slice: &'a mut [T]) -> Self {
        Parts {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// The address of element `start`, for elements that do not lie one after another.
    ///
    /// # Panics
    /// Where the slice has no such element.
    pub fn address(&self, start: usize) -> *mut T {
        assert!(start < self.len, "an address leaves its slice");
        // SAFETY: in bounds by the assertion.
        unsafe { self.start.add(start) }
    }

    /// Elements `start .. start + len`.
    ///
    /// # Panics
    /// Where the range is not within the slice.
    ///
    /// # Safety
    /// Ranges that live at the same time must not overlap.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(
            start <= self.len && len <= self.len - start,
            "a part leaves its slice"
        );
        // SAFETY: in bounds by the assertion; disjoint from other live parts by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

/// The chunk with index `idx` of `len` elements cut every `chunk`.
fn bounds(idx: usize, chunk: usize, len: usize) -> (usize, usize) {
    let start = idx * chunk;
    (start, chunk.min(len - start))
}

/// Calls `body(start, chunk)` for the chunks of `out`, `chunk` elements each (the last may be
/// shorter).
pub fn chunks_mut<T: Send>(
    services: &dyn Services,
    out: &mut [T],
    chunk: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    assert!(chunk > 0, "a chunk is empty");
    let (len, parts) = (out.len(), Parts::new(out));
    let count = len.div_ceil(chunk);
    let run = |idx: usize| {
        let (start, size) = bounds(idx, chunk, len);
        // SAFETY: chunks with different indices do not overlap, and each index is called once.
        body(start, unsafe { parts.part(start, size) });
    };
    match count {
        0 => {}
        1 => run(0),
        _ => services.parallel_for(count, &run),
    }
}

/// As [`chunks_mut`] over the rows of two outputs: `a` has `widths[0]` elements a row, `b`
/// `widths[1]`.
///
/// `body(row, rows of a, rows of b)` is called for every `rows` rows.
pub fn rows_mut2<A: Send, B: Send>(
    services: &dyn Services,
    (a, b): (&mut [A], &mut [B]),
    widths: [usize; 2],
    rows: usize,
    body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let total = a.len().checked_div(widths[0]).unwrap_or(0);
    assert!(
        a.len() == total * widths[0],
        "the first output is not whole rows"
    );
    assert!(b.len() == total * widths[1], "two outputs differ in rows");
    assert!(rows > 0, "a chunk is empty");
    let (a, b) = (Parts::new(a), Parts::new(b));
    services.parallel_for(total.div_ceil(rows), &|idx| {
        let (row, count) = bounds(idx, rows, total);
        // SAFETY: row ranges with different indices do not overlap, and each index is called once.
        let (a, b) = unsafe {
            (
                a.part(row * widths[0], count * widths[0]),
                b.part(row * widths[1], count * widths[1]),
            )
        };
        body(row, a, b);
    });
}

/// Rows of `width` elements that make a chunk of about [`CHUNK`] elements, at least 1.
pub fn rows_per_chunk(width: usize) -> usize {
    (CHUNK / width.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;

    #[test]
    fn every_element_is_visited_once() {
        let mut out = vec![0usize; 10];
        chunks_mut(&Serial, &mut out, 4, |start, chunk| {
            for (i, x) in chunk.iter_mut().enumerate() {
                *x += start + i + 1;
            }
        });
        assert_eq!(out, (1..=10).collect::<Vec<_>>());
        let (mut a, mut b) = (vec![0usize; 6], vec![0usize; 9]);
        rows_mut2(&Serial, (&mut a, &mut b), [2, 3], 2, |row, a, b| {
            a.iter_mut().for_each(|x| *x += row + 1);
            b.iter_mut().for_each(|x| *x += row + 1);
        });
        assert_eq!(a, [1, 1, 1, 1, 3, 3]);
        assert_eq!(b, [1, 1, 1, 1, 1, 1, 3, 3, 3]);
    }
}
