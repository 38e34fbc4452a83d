//! A block of queries and the shape -> the keys that each of them sees.

use std::ops::Range;

use super::{AttentionShape, Future, KEYS};

impl AttentionShape {
    /// The keys that query `query` sees, counted from the start of their sequence of `len` tokens.
    #[inline]
    pub(super) fn visible(&self, query: usize, len: usize) -> Range<usize> {
        let end = match self.future {
            Future::Hidden => query + 1,
            Future::Visible => len,
        };
        let start = self
            .window
            .map_or(0, |window| (query + 1).saturating_sub(window));
        start.min(end)..end
    }

    /// The first query that may see `key`: none before it does.
    #[inline]
    pub(super) fn first_query(&self, key: usize) -> usize {
        match self.future {
            Future::Hidden => key,
            Future::Visible => 0,
        }
    }

    /// The numbers of the blocks of keys that any of `queries` sees. Of later queries, neither the
    /// first nor the end is before that of earlier ones.
    #[inline]
    pub(super) fn block_range(&self, queries: Range<usize>, len: usize) -> Range<usize> {
        let first = self.visible(queries.start, len).start / KEYS;
        first..self.visible(queries.end - 1, len).end.div_ceil(KEYS)
    }

    /// Blocks of keys that any of `queries` sees: each starts at a multiple of [`KEYS`] and ends
    /// with the block or the last key seen.
    pub(super) fn blocks(
        &self,
        queries: Range<usize>,
        len: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let end = self.visible(queries.end - 1, len).end;
        self.block_range(queries, len)
            .map(move |block| block * KEYS..((block + 1) * KEYS).min(end))
    }

    /// The part of `block` that `query` sees, counted from the block's start.
    #[inline]
    pub(super) fn within(&self, block: &Range<usize>, query: usize, len: usize) -> Range<usize> {
        let seen = self.visible(query, len);
        let start = seen.start.clamp(block.start, block.end) - block.start;
        let end = seen.end.clamp(block.start, block.end) - block.start;
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(future: Future, window: Option<usize>) -> AttentionShape {
        AttentionShape {
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            scale: 1.0,
            future,
            window,
            softcap: None,
        }
    }

    #[test]
    fn blocks_hold_the_keys_that_their_queries_see() {
        let len = 700;
        for future in [Future::Hidden, Future::Visible] {
            for window in [None, Some(1), Some(200)] {
                let shape = shape(future, window);
                for queries in [0..16, 120..136, 690..700] {
                    let mut seen = vec![0; len];
                    for block in shape.blocks(queries.clone(), len) {
                        for query in queries.clone() {
                            for key in shape.within(&block, query, len) {
                                seen[block.start + key] += 1;
                                assert!(shape.first_query(block.start + key) <= query);
                                assert!(future == Future::Visible || block.start + key <= query);
                                assert!(window.is_none_or(|w| query < block.start + key + w));
                            }
                        }
                    }
                    let expected: usize =
                        queries.map(|query| shape.visible(query, len).len()).sum();
                    assert_eq!(seen.iter().sum::<usize>(), expected);
                }
            }
        }
        assert_eq!(
            shape(Future::Hidden, None).blocks(5..6, 10).next(),
            Some(0..6)
        );
        assert_eq!(
            shape(Future::Hidden, Some(100))
                .blocks(400..410, 800)
                .count(),
            2
        );
    }
}
