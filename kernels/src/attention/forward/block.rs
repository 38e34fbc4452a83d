//! Some queries and one group of heads -> their attention and the log-sum-exp of their logits.
#![allow(unsafe_code)] // Disjoint parts of the outputs on several threads.

use std::ops::{Add, Range};

use super::memory::{ForwardMemory, ROWS, State};
use crate::attention::softmax::{LANES, across, cap, exponentials, largest, shrinks, whole_lanes};
use crate::attention::{
    AttentionShape, KEYS, PANEL, factors, gather, gather_stored, padded, prefetch_rows,
};
use crate::element::{Element, Real};
use crate::matmul::{Dense, Isa, Operand, ROW, Scalar, Side, Update, as_steps};
use crate::simd::{prefetch, vectorized};
use crate::split::Parts;

/// Some tokens of one sequence as queries of one group of heads.
pub struct Block<'a, E> {
    pub isa: Isa,
    pub shape: &'a AttentionShape,
    /// `[T, H K]`.
    pub q: &'a [E],
    /// The keys of the sequence from its start, `[.., J K]`.
    pub k: &'a [E],
    /// Its values.
    pub v: &'a [E],
    /// The key/value head.
    pub head: usize,
    /// Which of the `T` tokens are the queries.
    pub tokens: Range<usize>,
    /// Place of the first of them in its sequence.
    pub first: usize,
    /// Tokens of the sequence.
    pub len: usize,
}

impl<E: Element> Block<'_, E>
where
    E::Acc: Scalar,
{
    /// Writes `out` of its tokens and heads and, if given, their `lse`. `later` is probably the
    /// thread's next block.
    pub fn forward(
        &self,
        memory: &mut [E::Acc],
        out: &Parts<'_, E>,
        lse: Option<&Parts<'_, E::Acc>>,
        later: Option<&Self>,
    ) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), self.tokens.len());
        let rows = group * count;
        let ForwardMemory {
            q,
            keys,
            values,
            strip,
            logits,
            sums,
            most,
            total,
        } = ForwardMemory::new(shape, memory);
        let q = self.pack_queries(sums, rows, (q, strip));
        let mut state = State {
            sums: &mut sums[..rows * padded(width)],
            most: &mut most[..rows],
            total: &mut total[..rows],
        };
        vectorized(
            #[inline(always)]
            || {
                state.sums.fill(E::Acc::ZERO);
                state.most.fill(E::Acc::NEG_INFINITY);
                state.total.fill(E::Acc::ZERO);
            },
        );
        let mut blocks = shape.blocks(self.queries(), self.len).peekable();
        while let Some(block) = blocks.next() {
            match blocks.peek() {
                Some(next) => self.prefetch_keys(next),
                None => {
                    if let Some(later) = later {
                        later.prefetch_queries();
                        let first = shape.blocks(later.queries(), later.len).next();
                        first.iter().for_each(|keys| later.prefetch_keys(keys));
                    }
                    self.outputs(out).for_each(|(_, out)| prefetch(out));
                }
            }
            let at = block.start * shape.kv_width() + self.head * width;
            let [k, v] = [self.k, self.v]
                .map(|of| Dense::strided(&of[at..], block.len(), width, shape.kv_width()));
            let keys = Side::right(self.isa, Operand::over_cols(&k), keys, strip);
            let values = Side::right(self.isa, Operand::over_rows(&v), values, strip);
            for panel in q.panels() {
                let seen = self.seen(&block, panel.range());
                if seen.is_empty() {
                    continue;
                }
                // One panel's logits stay in the first-level cache until they are used up.
                let to = (&mut *logits, ROW);
                q.multiply(panel, &keys, seen.clone(), to, Update::Overwrite);
                let rows = (panel.range(), &seen);
                if self.isa == self.isa.vectors() {
                    self.weigh::<false, 16>(&block, rows, logits, &mut state);
                } else if panel.lanes <= 16 {
                    self.weigh::<true, 16>(&block, rows, logits, &mut state);
                } else {
                    self.weigh::<true, ROWS>(&block, rows, logits, &mut state);
                }
                as_steps(self.isa, &mut logits[..panel.lanes * KEYS], seen.clone());
                let stride = padded(width);
                let to = (&mut state.sums[panel.start * stride..], stride);
                values.add_rows((logits, panel.lanes), seen, to);
            }
        }
        self.store(&state, out, lse);
    }

    /// The block's rows, `[count, group, K]`, packed; they are gathered in front of `memory`.
    fn pack_queries<'m>(
        &self,
        memory: &mut [E::Acc],
        rows: usize,
        (q, strip): (&'m mut [E::Acc], &mut [E::Acc]),
    ) -> Side<'m, E::Acc> {
        let shape = self.shape;
        let width = shape.group() * shape.head_dim;
        let start = self.tokens.start * shape.q_width() + self.head * width;
        let memory = &mut memory[..rows * shape.head_dim];
        let (at, sizes) = ((start, shape.q_width()), [1, self.tokens.len(), width]);
        if self.isa == self.isa.vectors() {
            let [of_queries, _] = factors(self.isa, shape);
            gather(self.q, at, sizes, of_queries, memory);
            let queries = Dense::new(memory, rows, shape.head_dim);
            return Side::left(self.isa, Operand::over_cols(&queries), q, strip);
        }
        let queries = gather_stored(self.q, at, sizes, memory);
        let queries = Dense::new(queries, rows, shape.head_dim);
        Side::left(self.isa, Operand::over_cols(&queries), q, strip)
    }

    /// Its queries, counted from the start of the sequence.
    fn queries(&self) -> Range<usize> {
        self.first..self.first + self.tokens.len()
    }

    /// Asks for the keys and values of a block, which are packed next.
    fn prefetch_keys(&self, keys: &Range<usize>) {
        let width = self.shape.head_dim;
        let columns = [self.shape.kv_width(), self.head * width, width];
        prefetch_rows(&[self.k, self.v], keys.clone(), columns);
    }

    /// Asks for its queries, which are packed next.
    fn prefetch_queries(&self) {
        let width = self.shape.group() * self.shape.head_dim;
        let columns = [self.shape.q_width(), self.head * width, width];
        prefetch_rows(&[self.q], self.tokens.clone(), columns);
    }

    /// The keys of `block` that any of `rows` sees, from a whole panel's first on.
    fn seen(&self, block: &Range<usize>, rows: Range<usize>) -> Range<usize> {
        let [first, last] = [rows.start, rows.end - 1].map(|row| self.seen_by(block, row));
        let seen = first.start..last.end;
        if seen.is_empty() {
            return 0..0;
        }
        seen.start / PANEL * PANEL..seen.end
    }

    /// The keys of `block` that a row sees.
    #[inline(always)]
    fn seen_by(&self, block: &Range<usize>, row: usize) -> Range<usize> {
        let query = self.first + row / self.shape.group();
        self.shape.within(block, query, self.len)
    }

    /// Logits of `seen` keys of a block, `[rows, KEYS]`, at most `N` rows -> their exponentials,
    /// with `state` made ready for the sums of them.
    fn weigh<const FUSED: bool, const N: usize>(
        &self,
        block: &Range<usize>,
        (rows, seen): (Range<usize>, &Range<usize>),
        logits: &mut [E::Acc],
        State { sums, most, total }: &mut State<'_, E::Acc>,
    ) {
        let width = padded(self.shape.head_dim);
        let (most, total) = (&mut most[rows.clone()], &mut total[rows.clone()]);
        let sums = &mut sums[rows.start * width..rows.end * width];
        let count = rows.len();
        let (early, factor) = self.factors();
        debug_assert!(FUSED || factor == E::Acc::ONE);
        let whole = early.is_none()
            && [rows.start, rows.end - 1].map(|row| self.seen_by(block, row)) == [0..KEYS, 0..KEYS];
        vectorized(
            #[inline(always)]
            move || {
                let (logits, _) = logits.as_chunks_mut::<KEYS>();
                let mut ranges: [Range<usize>; N] = std::array::from_fn(|_| 0..KEYS);
                let mut lanes = [[E::Acc::ZERO; LANES]; N];
                let [mut before, mut now] = [[E::Acc::ZERO; N]; 2];
                for (idx, logits) in logits.iter_mut().enumerate().take(count) {
                    if !whole {
                        let by_row = self.seen_by(block, rows.start + idx);
                        ranges[idx] = self.mask(logits, (&by_row, seen), early);
                    }
                    lanes[idx] = largest(&logits[ranges[idx].clone()]);
                }
                for (idx, most) in most.iter_mut().enumerate() {
                    before[idx] = *most;
                    now[idx] = (across(lanes[idx], Real::larger) * factor).larger(*most);
                    *most = now[idx];
                }
                let shrinks = shrinks(&before, &now);
                for (idx, logits) in logits.iter_mut().enumerate().take(count) {
                    let logits = &mut logits[ranges[idx].clone()];
                    // All logits are minus infinity (or there are none): avoids 0 / 0.
                    if now[idx] == E::Acc::NEG_INFINITY {
                        logits.fill(E::Acc::ZERO);
                        lanes[idx] = [E::Acc::ZERO; LANES];
                    } else {
                        lanes[idx] = exponentials::<_, FUSED>(logits, factor, now[idx]);
                    }
                }
                for (idx, total) in total.iter_mut().enumerate() {
                    let shrink = shrinks[idx];
                    *total = *total * shrink + across(lanes[idx], Add::add);
                    if shrink != E::Acc::ONE {
                        let sums = &mut sums[idx * width..(idx + 1) * width];
                        sums.iter_mut().for_each(|x| *x *= shrink);
                    }
                }
            },
        );
    }

    /// The factor of products that is multiplied first, if it is, and the one that is left for the
    /// exponential: the largest logit is that of the largest product where it is over 0.
    fn factors(&self) -> (Option<E::Acc>, E::Acc) {
        let [_, factor] = factors(self.isa, self.shape);
        if self.shape.softcap.is_none() && factor > E::Acc::ZERO {
            (None, factor)
        } else {
            (Some(factor), E::Acc::ONE)
        }
    }

    /// Products of a row with the keys `seen`, of which it sees `by_row` -> those times the `early`
    /// factor, capped, and minus infinity up to whole lanes, which are returned; 0 elsewhere.
    #[inline(always)]
    fn mask(
        &self,
        logits: &mut [E::Acc; KEYS],
        (by_row, seen): (&Range<usize>, &Range<usize>),
        early: Option<E::Acc>,
    ) -> Range<usize> {
        let lanes = whole_lanes(by_row, KEYS);
        logits[seen.start..by_row.start.clamp(seen.start, seen.end)].fill(E::Acc::ZERO);
        logits[lanes.end.min(seen.end)..seen.end].fill(E::Acc::ZERO);
        if let Some(factor) = early {
            let logits = &mut logits[by_row.clone()];
            logits.iter_mut().for_each(|x| *x *= factor);
            if let Some(softcap) = self.shape.softcap {
                cap(logits, E::Acc::from_f64(softcap));
            }
        }
        logits[by_row.end..lanes.end].fill(E::Acc::NEG_INFINITY);
        lanes
    }

    /// Its tokens, each with what is written of it.
    fn outputs<'o>(&self, out: &'o Parts<'_, E>) -> impl Iterator<Item = (usize, &'o mut [E])> {
        let width = self.shape.group() * self.shape.head_dim;
        let (stride, first) = (self.shape.q_width(), self.head * width);
        self.tokens.clone().map(move |token| {
            // SAFETY: tasks have different tokens or groups of heads, and each runs once.
            (token, unsafe { out.part(token * stride + first, width) })
        })
    }

    /// Writes the block's outputs and, if given, their `lse`.
    fn store(
        &self,
        State { sums, most, total }: &State<'_, E::Acc>,
        out: &Parts<'_, E>,
        lse: Option<&Parts<'_, E::Acc>>,
    ) {
        let shape = self.shape;
        let (width, group) = (shape.head_dim, shape.group());
        let first_head = self.head * group;
        for (query, (token, out)) in self.outputs(out).enumerate() {
            if let Some(lse) = lse {
                // SAFETY: as above.
                let lse = unsafe { lse.part(token * shape.heads + first_head, group) };
                for (head, lse) in lse.iter_mut().enumerate() {
                    let row = query * group + head;
                    *lse = most[row] + total[row].ln();
                }
            }
            vectorized(
                #[inline(always)]
                || {
                    for (head, out) in out.chunks_exact_mut(width).enumerate() {
                        let row = query * group + head;
                        let (sums, all) = (&sums[row * padded(width)..], total[row]);
                        for (out, &sum) in out.iter_mut().zip(sums) {
                            *out = E::store(sum / all);
                        }
                    }
                },
            );
        }
    }
}
