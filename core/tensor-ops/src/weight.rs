//! A weight as a request names it, dense or packed -> tensors of its rows.

mod packed;

use std::borrow::Cow;
use std::sync::Mutex;

use espalier_host_device::{Asked, Callback, Setting};
use espalier_interface::format::Decoding;
use espalier_interface::{Result, WeightLayout};

use crate::launch::{Launch, lock};
use crate::{Tensors, Threads};
use packed::Stages;

/// Most elements of a packed weight that are decoded at once.
const DECODED: usize = 1 << 21;
/// Tensors of them that exist at once, of 4 or 8 bytes an element.
const DECODED_BYTES: u64 = 40;

/// How launches read a weight `[rows, cols]`.
pub struct Weight {
    size: [usize; 2],
    kind: Kind,
    /// Index of its first range among the params' ranges.
    first: usize,
    /// Number of its ranges.
    ranges: usize,
}

enum Kind {
    Dense,
    Described(Box<Stages>),
    Callback(Callback),
}

impl Weight {
    /// Param `index`, whose first range is `first`.
    pub fn new(
        asked: &Asked<'_>,
        setting: &Setting<'_>,
        index: usize,
        first: usize,
    ) -> Result<Self> {
        let param = &asked.request.params[index];
        let (kind, ranges) = match &param.layout {
            WeightLayout::Dense(_) => (Kind::Dense, 1),
            WeightLayout::Packed(format) => {
                let kind = match format.decoding {
                    Decoding::Callback => {
                        let decoders = setting.decoders;
                        Kind::Callback(Callback::of(asked, decoders, index, &format.quantizer)?)
                    }
                    _ => Kind::Described(Box::new(Stages::new(format)?)),
                };
                (kind, format.segments.len())
            }
        };
        Ok(Weight {
            size: asked.matrix(index)?,
            kind,
            first,
            ranges,
        })
    }

    /// Rows and columns; a vector is one row.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Number of its ranges.
    pub fn ranges(&self) -> usize {
        self.ranges
    }

    /// Whether its rows are given all at once.
    pub fn is_one_block(&self) -> bool {
        self.rows_at_once() >= self.size[0]
    }

    /// Bytes of the tensors that decoding makes.
    pub fn temporary_bytes(&self) -> u64 {
        match self.kind {
            Kind::Dense => 0,
            _ => DECODED_BYTES * (self.rows_at_once() * self.size[1]) as u64,
        }
    }

    fn rows_at_once(&self) -> usize {
        let [rows, cols] = self.size;
        match self.kind {
            Kind::Dense => rows,
            _ => (DECODED / cols.max(1)).clamp(1, rows.max(1)),
        }
    }

    /// All rows, where they are one block.
    pub fn whole<L: Tensors>(&self, launch: &Launch<'_, L>) -> Result<L::Tensor> {
        self.rows(launch, &self.on_host(launch)?, [0, self.size[0]])
    }

    /// Calls `body` with some rows of the weight, `[n, cols]` in their dtype or f32, and `[first,
    /// n]`, until it had all.
    pub fn blocks<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        mut body: impl FnMut(&L::Tensor, [usize; 2]) -> Result<()>,
    ) -> Result<()> {
        let (most, on_host) = (self.rows_at_once(), self.on_host(launch)?);
        for begin in (0..self.size[0]).step_by(most.max(1)) {
            let rows = [begin, most.min(self.size[0] - begin)];
            body(&self.rows(launch, &on_host, rows)?, rows)?;
        }
        Ok(())
    }

    /// The segments that a quantizer decodes, which it does on the host.
    fn on_host<'l, L: Tensors>(&self, launch: &'l Launch<'_, L>) -> Result<Vec<Cow<'l, [u8]>>> {
        let segments = match self.kind {
            Kind::Callback(_) => self.first..self.first + self.ranges,
            _ => 0..0,
        };
        segments
            .map(|index| launch.bytes(launch.param(index)))
            .collect()
    }

    fn rows<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        on_host: &[Cow<'_, [u8]>],
        [begin, len]: [usize; 2],
    ) -> Result<L::Tensor> {
        match &self.kind {
            Kind::Dense => {
                let all = launch.param(self.first).reshaped(&self.size);
                launch.read(&all.narrowed(0, begin, len))
            }
            Kind::Described(stages) => launch.gathered(len, self.size[1], |first, len| {
                stages.rows(launch, self.first, [begin + first, len])
            }),
            Kind::Callback(callback) => self.called(launch, callback, on_host, [begin, len]),
        }
    }

    /// Rows that a quantizer decodes on the host's threads.
    fn called<L: Tensors>(
        &self,
        launch: &Launch<'_, L>,
        callback: &Callback,
        on_host: &[Cow<'_, [u8]>],
        [begin, len]: [usize; 2],
    ) -> Result<L::Tensor> {
        let cols = self.size[1];
        let segments: Vec<&[u8]> = on_host.iter().map(|segment| &segment[..]).collect();
        let mut values = vec![0.0f32; len * cols];
        let rows: Vec<_> = values.chunks_mut(cols.max(1)).map(Mutex::new).collect();
        launch.on_threads(rows.len(), Threads::Host, |row| {
            callback.decode(&segments, (begin + row) as u64, &mut lock(&rows[row]))
        })?;
        drop(rows);
        launch.library.floats(&values, &[len, cols])
    }
}
