//! A weight, its bias and the adapter's fragment at that site -> the weight and bias that compute
//! the same.
//!
//! An adapter is a graph, not a formula known to the host. Its outputs for the unit vectors are the
//! columns of the merged weight, and its output for zero is the merged bias. This holds where the
//! fragment is linear in its input, which is tested with random inputs.
//!
//! Legend: `N x M` the weight `[out, in]`, `T` unit vectors at once.

use std::sync::Mutex;

use espalier_engine::device_graph::GraphKernels;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::graph::Graph;
use espalier_interface::random::{Purpose, key, philox, uniform};
use espalier_interface::{PluginError, Result, Services};
use espalier_numeric::{Rows, dot, transpose};

use super::fragment::{BaseInput, Fragment, InputRows};

/// Most unit vectors at once, and the resulting most numbers of one value of a fragment.
const MAX_ROWS: u64 = 256;
const MAX_NUMBERS: u64 = 1 << 22;
/// Random inputs on which a merged weight is compared with its fragment.
const PROBES: usize = 2;
/// Largest difference of the two, relative to the largest output: sums of f32 in another order.
const TOLERANCE: f32 = 1e-4;

/// The inputs of a merge.
pub struct Joined<'a> {
    /// The device that computes the fragment, and its kernels.
    pub kernels: &'a GraphKernels,
    /// The host's threads.
    pub services: &'a dyn Services,
    /// The site.
    pub site: &'a Site,
    /// The fragment.
    pub graph: &'a Graph,
    /// Its params in its order.
    pub params: &'a [Vec<f32>],
}

impl Joined<'_> {
    /// Merges `weight`, `[N, M]`, into `out` of the same shape; returns the merged bias, `[N]`.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a fragment that no weight can replace; errors of the device.
    pub fn merge(&self, weight: &[f32], bias: Option<&[f32]>, out: &mut [f32]) -> Result<Vec<f32>> {
        let [rows, cols] = self.site.shape;
        let most = (MAX_NUMBERS / rows.max(cols)).clamp(1, MAX_ROWS);
        let most = most.max(PROBES as u64);
        let fragment = Fragment::new(self.kernels, self.graph, self.params, most)?;
        if self.site.kind == SiteKind::Embedding {
            self.table(&fragment, weight, out, most)?;
            return Ok(Vec::new());
        }
        self.columns(&fragment, weight, out, most)?;
        let merged_bias = self.bias(&fragment, weight, bias)?;
        self.check(&fragment, weight, bias, out, &merged_bias)?;
        Ok(merged_bias)
    }

    /// Every token's row of the table, `[V, D]`.
    fn table(
        &self,
        fragment: &Fragment<'_>,
        weight: &[f32],
        out: &mut [f32],
        most: u64,
    ) -> Result<()> {
        let width = self.site.shape[1] as usize;
        let chunk = most as usize * width;
        for (index, (weight, out)) in weight.chunks(chunk).zip(out.chunks_mut(chunk)).enumerate() {
            let first = (index * most as usize) as i32;
            let count = weight.len() / width;
            let tokens: Vec<i32> = (first..first + count as i32).collect();
            let refused = Mutex::new(false);
            let base = |input: BaseInput<'_>| {
                if let BaseInput::Computed(_) = input {
                    *refused.lock().expect("one thread") = true;
                }
                weight.to_vec()
            };
            let made = fragment.run(&InputRows::Tokens(&tokens), count as u64, &base)?;
            if *refused.lock().expect("one thread") {
                return Err(self.refusal("it looks up other tokens than its own"));
            }
            out.copy_from_slice(&made);
        }
        Ok(())
    }

    /// The fragment's output for each unit vector: a column of the merged weight. No bias is added.
    fn columns(
        &self,
        fragment: &Fragment<'_>,
        weight: &[f32],
        out: &mut [f32],
        most: u64,
    ) -> Result<()> {
        let [rows, cols] = self.site.shape.map(|extent| extent as usize);
        let mut first = 0;
        while first < cols {
            let count = (most as usize).min(cols - first);
            let mut units = vec![0.0; count * cols];
            (0..count).for_each(|t| units[t * cols + first + t] = 1.0);
            let base = |input: BaseInput<'_>| match input {
                BaseInput::Own => {
                    let mut own = vec![0.0; count * rows];
                    let from = Rows {
                        numbers: &weight[first..],
                        stride: cols,
                    };
                    let to = Rows {
                        numbers: &mut own[..],
                        stride: rows,
                    };
                    transpose([rows, count], from, to);
                    own
                }
                BaseInput::Computed(vectors) => self.product(weight, vectors, None),
            };
            let made = fragment.run(&InputRows::Vectors(&units), count as u64, &base)?;
            let from = Rows {
                numbers: &made[..],
                stride: rows,
            };
            let to = Rows {
                numbers: &mut out[first..],
                stride: cols,
            };
            transpose([count, rows], from, to);
            first += count;
        }
        Ok(())
    }

    /// The fragment's output for zero.
    fn bias(
        &self,
        fragment: &Fragment<'_>,
        weight: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Vec<f32>> {
        let zero = vec![0.0; self.site.shape[1] as usize];
        let base = |input: BaseInput<'_>| match input {
            BaseInput::Own => self.product(weight, &zero, bias),
            BaseInput::Computed(vectors) => self.product(weight, vectors, bias),
        };
        let made = fragment.run(&InputRows::Vectors(&zero), 1, &base)?;
        if bias.is_none() && made.iter().any(|&x| x != 0.0) {
            Err(self.refusal("it adds a constant, and the site has no bias to hold it"))
        } else {
            Ok(made)
        }
    }

    /// Compares the merged weight and bias with the fragment on random inputs.
    fn check(
        &self,
        fragment: &Fragment<'_>,
        weight: &[f32],
        bias: Option<&[f32]>,
        merged: &[f32],
        merged_bias: &[f32],
    ) -> Result<()> {
        let cols = self.site.shape[1];
        let key = key(0, Purpose::SYNTHETIC, 0);
        let probes: Vec<f32> = (0..PROBES as u32 * cols as u32)
            .map(|index| 2.0 * uniform(philox(key, [index, 0, 0, 0])[0]) - 1.0)
            .collect();
        let base = |input: BaseInput<'_>| match input {
            BaseInput::Own => self.product(weight, &probes, bias),
            BaseInput::Computed(vectors) => self.product(weight, vectors, bias),
        };
        let expected = fragment.run(&InputRows::Vectors(&probes), PROBES as u64, &base)?;
        let found = self.product(merged, &probes, Some(merged_bias));
        let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let apart = |(f, e): (&f32, &f32)| {
            let near = (f - e).abs() <= TOLERANCE * largest;
            !near
        };
        if found.iter().zip(&expected).any(apart) {
            Err(self.refusal("it is not linear in its input"))
        } else {
            Ok(())
        }
    }

    /// `vectors W^T (+ bias)`, `[T, N]`, one row of the weight per thread.
    fn product(&self, weight: &[f32], vectors: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let [rows, cols] = self.site.shape.map(|extent| extent as usize);
        let count = vectors.len() / cols;
        let columns: Vec<Mutex<Vec<f32>>> = (0..rows).map(|_| Mutex::default()).collect();
        self.services.parallel_for(rows, &|n| {
            let row = &weight[n * cols..(n + 1) * cols];
            let add = bias.map_or(0.0, |bias| bias[n]);
            let made = vectors.chunks_exact(cols).map(|x| dot(row, x) as f32 + add);
            *columns[n].lock().expect("each row is taken once") = made.collect();
        });
        let mut out = vec![0.0; count * rows];
        for (n, column) in columns.into_iter().enumerate() {
            let column = column.into_inner().expect("no panic");
            (0..count).for_each(|t| out[t * rows + n] = column[t]);
        }
        out
    }

    fn refusal(&self, why: &str) -> PluginError {
        PluginError::unsupported(format!(
            "`{}`: the adapter cannot be merged into a weight: {why}",
            self.site.name
        ))
    }
}
