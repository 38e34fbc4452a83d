//! `attention`, `attention_backward` and `attention_cached`: one sequence after the other, or the
//! heads of sequences side by side.

use espalier_host_device::{Asked, CacheStart, CacheStarts, Setting, boundaries};
use espalier_interface::Result;
use espalier_interface::graph::Dim;

use super::{Kernel, Logits, Op, Temporaries};
use crate::attention::{AttentionMask, Future};
use crate::launch::Launch;
use crate::{Memory, Tensors, Threads};

pub fn ops<L: Tensors>() -> Vec<Op<L>> {
    let op = |name, prepare| Op {
        temporaries: Temporaries::Whole(3),
        ..Op::new(name, prepare)
    };
    vec![
        op("attention", forward),
        op("attention_backward", backward),
        // The caches are read in part: what is read is as large as a sequence's keys.
        op("attention_cached", cached),
    ]
}

/// The attributes of an attention.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    mask: AttentionMask,
}

impl Shape {
    fn of(asked: &Asked<'_>) -> Result<Self> {
        let attributes = asked.attributes();
        Ok(Shape {
            heads: attributes.count("heads")?,
            kv_heads: attributes.count("kv_heads")?,
            head_dim: attributes.count("head_dim")?,
            mask: AttentionMask {
                scale: attributes.number("scale")?,
                future: if attributes.flag("causal") {
                    Future::Hidden
                } else {
                    Future::Visible
                },
                window: attributes.count("window").ok(),
                softcap: attributes.optional_number("softcap"),
                first: 0,
            },
        })
    }

    /// The query heads that read `len` key heads from `begin` on.
    fn queries(&self, begin: usize, len: usize) -> [usize; 2] {
        let shared = self.heads / self.kv_heads;
        [begin * shared, len * shared]
    }

    /// Heads of the rows of `tokens`, `[H, n, K]`.
    fn part(&self, memory: &Memory, [begin, len]: [usize; 2], heads: [usize; 2]) -> Memory {
        let rows = memory.narrowed(0, begin, len);
        rows.heads(self.head_dim).narrowed(0, heads[0], heads[1])
    }

    /// How many tensors of logits the forward pass has at once.
    fn forward_copies(&self) -> u64 {
        if self.mask.softcap.is_some() { 8 } else { 5 }
    }

    /// Tensors of a block of queries, which sees at most `keys` keys.
    fn logits(&self, copies: u64, keys: u64) -> Logits {
        Logits {
            copies,
            of_query: keys.saturating_mul(self.heads as u64),
        }
    }
}

/// A sequence's tokens and some of its heads: `[begin, len]` of tokens and of key heads.
type Task = ([usize; 2], [usize; 2]);

/// The parts of a launch that are computed by themselves.
fn tasks<L: Tensors>(
    launch: &Launch<'_, L>,
    shape: &Shape,
    sequences: &[[usize; 2]],
) -> Vec<(usize, Task)> {
    let heads = match launch.library.split().threads {
        Threads::Library => shape.kv_heads,
        Threads::Host => 1,
    };
    let mut tasks = Vec::new();
    for (index, &tokens) in sequences.iter().enumerate() {
        if tokens[1] > 0 {
            let first = (0..shape.kv_heads).step_by(heads);
            tasks.extend(first.map(|first| (index, (tokens, [first, heads]))));
        }
    }
    tasks
}

/// Begin and length of each sequence, with checked boundaries.
fn sequences(cu_seqlens: &[i32], tokens: usize) -> Result<Vec<[usize; 2]>> {
    let pairs = boundaries(cu_seqlens, tokens)?.windows(2);
    let sequence = |pair: &[i32]| [pair[0] as usize, (pair[1] - pair[0]) as usize];
    Ok(pairs.map(sequence).collect())
}

/// The tensor at `memory` in the dtype of attention.
fn read<L: Tensors>(launch: &Launch<'_, L>, memory: &Memory) -> Result<L::Tensor> {
    let dtype = launch.library.attention_dtype(memory.dtype());
    launch.library.cast(&launch.read(memory)?, dtype)
}

fn forward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let shape = Shape::of(asked)?;
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let sequences = sequences(&launch.to_host(launch.input(3))?, launch.tokens)?;
        let tasks = tasks(launch, &shape, &sequences);
        launch.each(tasks.len(), |index| {
            let (_, (tokens, keys)) = tasks[index];
            let queries = shape.queries(keys[0], keys[1]);
            let part = |index: usize, heads| shape.part(launch.input(index), tokens, heads);
            let q = read(launch, &part(0, queries))?;
            let k = read(launch, &part(1, keys))?;
            let v = read(launch, &part(2, keys))?;
            let [out, lse] = launch.library.attention(&shape.mask, [&q, &k, &v])?;
            launch.write(&out, &shape.part(launch.output(0), tokens, queries))?;
            launch.write(&lse, &statistics(launch.output(1), tokens, queries))
        })
    });
    Ok(kernel.with_logits(shape.logits(shape.forward_copies(), asked.request.max_tokens)))
}

/// Numbers `[T, H]` of heads as `[H, n, 1]`.
fn statistics(memory: &Memory, [begin, len]: [usize; 2], heads: [usize; 2]) -> Memory {
    let rows = memory.narrowed(0, begin, len);
    rows.heads(1).narrowed(0, heads[0], heads[1])
}

fn backward<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let shape = Shape::of(asked)?;
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let sequences = sequences(&launch.to_host(launch.input(6))?, launch.tokens)?;
        let tasks = tasks(launch, &shape, &sequences);
        launch.each(tasks.len(), |index| {
            let (_, (tokens, keys)) = tasks[index];
            let queries = shape.queries(keys[0], keys[1]);
            let part =
                |index: usize, heads| read(launch, &shape.part(launch.input(index), tokens, heads));
            let (dout, q, out) = (part(0, queries)?, part(1, queries)?, part(4, queries)?);
            let (k, v) = (part(2, keys)?, part(3, keys)?);
            let lse = launch.float(&statistics(launch.input(5), tokens, queries))?;
            let operands = [&dout, &q, &k, &v, &out, &lse];
            let gradients = launch.library.attention_backward(&shape.mask, operands)?;
            for (index, (gradient, heads)) in
                gradients.iter().zip([queries, keys, keys]).enumerate()
            {
                launch.write(gradient, &shape.part(launch.output(index), tokens, heads))?;
            }
            Ok(())
        })
    });
    Ok(kernel.with_logits(shape.logits(7, asked.request.max_tokens)))
}

fn cached<L: Tensors>(asked: &Asked<'_>, _: &Setting<'_>) -> Result<Kernel<L>> {
    let shape = Shape::of(asked)?;
    let [Dim::Fixed(slots), Dim::Fixed(capacity), _] = asked.output(1).shape[..] else {
        return Err(asked.invalid("keys are not [slots, tokens, width]".to_owned()));
    };
    let [slots, capacity] = [slots, capacity].map(|extent| extent as usize);
    let kernel = Kernel::new(move |launch: &Launch<'_, L>| {
        let [cu_seqlens, positions, of_slots] =
            [3, 4, 5].map(|index| launch.to_host(launch.input(index)));
        let (cu_seqlens, positions, of_slots) = (cu_seqlens?, positions?, of_slots?);
        let sequences = sequences(&cu_seqlens, launch.tokens)?;
        let places = [&positions[..], &of_slots];
        let starts = CacheStarts::new(&cu_seqlens, places, [slots, capacity])?;
        // The caches hold keys and values before anything attends to them.
        for (seq, &[begin, len]) in sequences.iter().enumerate() {
            let CacheStart { slot, held } = starts.at(seq);
            for (input, cache) in [(1, 1), (2, 2)] {
                let new = launch.input(input).narrowed(0, begin, len);
                let cache = slot_rows(launch.output(cache), slot, [held, len]);
                if len > 0 {
                    launch.write(&launch.read(&new)?, &cache)?;
                }
            }
        }
        let tasks = tasks(launch, &shape, &sequences);
        launch.each(tasks.len(), |index| {
            let (sequence, (tokens, keys)) = tasks[index];
            let queries = shape.queries(keys[0], keys[1]);
            let CacheStart { slot, held } = starts.at(sequence);
            let all = [0, held + tokens[1]];
            let cache = |index: usize| {
                let rows = slot_rows(launch.output(index), slot, all);
                read(launch, &shape.part(&rows, all, keys))
            };
            let mask = AttentionMask {
                first: held,
                ..shape.mask
            };
            let q = read(launch, &shape.part(launch.input(0), tokens, queries))?;
            let [out, _] = launch
                .library
                .attention(&mask, [&q, &cache(1)?, &cache(2)?])?;
            launch.write(&out, &shape.part(launch.output(0), tokens, queries))
        })
    });
    // Keys and values of a whole slot in f32, and of a block of them.
    let of_keys = (4 * 4 * capacity * shape.kv_heads * shape.head_dim) as u64;
    let logits = shape.logits(shape.forward_copies(), capacity as u64);
    Ok(kernel.with_logits(logits).with_temporaries(of_keys))
}

/// Rows of a slot of a cache `[N, L, J K]`, as `[len, J K]`.
fn slot_rows(cache: &Memory, slot: usize, [begin, len]: [usize; 2]) -> Memory {
    let [slots, capacity, width] = cache.shape()[..] else {
        panic!("a cache of other extents");
    };
    let rows = cache.reshaped(&[slots * capacity, width]);
    rows.narrowed(0, slot * capacity + begin, len)
}
