//! A param in any format -> its values where a kernel can read them.

use std::sync::Arc;

use espalier_host_device::{Asked, Call};
use espalier_interface::format::{Decoding, Format};
use espalier_interface::{DType, Result, WeightLayout};

use super::stored;
use crate::arguments::{Argument, Arguments, address};
use crate::decoder::{DECODED, Description, GivenTables};
use crate::host_decode::{HostDecode, HostWeight};
use crate::kit::Kit;
use crate::modules::Function;
use crate::sources::{DECODE, FLAT};

/// Most segments of a packed weight, as the kernel has it.
const MOST_SEGMENTS: usize = Format::MOST_SEGMENTS;

/// How a launch reads a weight `[rows, columns]`.
pub struct Weight {
    /// Rows and columns; a vector is one row.
    pub size: [usize; 2],
    /// The dtype of the values that it gives.
    pub dtype: DType,
    /// Index of its first range among the params' ranges.
    first: usize,
    /// Number of its ranges.
    pub ranges: usize,
    kind: Kind,
}

enum Kind {
    /// They are what is stored.
    Stored,
    /// They are what is stored, rounded or widened.
    Cast { kernel: Function, bytes: usize },
    /// They are decoded.
    Packed {
        kernel: Function,
        tables: GivenTables,
    },
    /// The host decodes them.
    OnHost(HostWeight),
}

/// Addresses of segments, as kernels take them.
pub struct Segments([u64; MOST_SEGMENTS]);

/// Rows and columns, as kernels take them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Shape([u64; 2]);

#[allow(unsafe_code)] // A struct of numbers.
// SAFETY: numbers without padding.
unsafe impl Argument for Shape {}

impl Segments {
    /// Those of a launch, `ranges` of them from `first` on.
    pub fn of(call: &Call<'_>, first: usize, ranges: usize) -> Self {
        let mut segments = Segments([0; MOST_SEGMENTS]);
        for (index, segment) in segments.0[..ranges].iter_mut().enumerate() {
            *segment = address(call.param_place(first + index));
        }
        segments
    }

    /// The words of a packed weight with these tables, as kernels take it.
    pub fn and(&self, tables: &GivenTables) -> Vec<u64> {
        [&self.0[..], &[tables.address()]].concat()
    }
}

impl Weight {
    /// Param `index`, whose first range is `first`, as values of one of `dtypes`: of the stored one
    /// where it is among them, else of the first.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a dtype or a format that this backend does not have.
    pub fn new(
        asked: &Asked<'_>,
        kit: &Kit,
        [index, first]: [usize; 2],
        dtypes: &[DType],
    ) -> Result<Self> {
        let param = &asked.request.params[index];
        let size = asked.matrix(index)?;
        let wanted = dtypes[0];
        let of = |dtype, ranges, kind| Weight {
            size,
            dtype,
            first,
            ranges,
            kind,
        };
        match &param.layout {
            WeightLayout::Dense(dtype) if dtypes.contains(dtype) => Ok(of(*dtype, 1, Kind::Stored)),
            WeightLayout::Dense(dtype) => {
                let name = format!("cast_{}_{}", stored(asked, *dtype)?, wanted.name());
                let kernel = kit.function(FLAT, &name)?;
                let bytes = dtype.bytes() as usize;
                Ok(of(wanted, 1, Kind::Cast { kernel, bytes }))
            }
            WeightLayout::Packed(format) => {
                let ranges = format.segments.len();
                if let Some(host) = on_host(asked, kit, index, format) {
                    let param = (index, format.as_ref());
                    let weight = HostWeight::new(host, asked, &kit.decoders, param, wanted)?;
                    return Ok(of(wanted, ranges, Kind::OnHost(weight)));
                }
                let described = Description::of(format, asked.request.device_code_of(index))?;
                let name = format!("decode_{}", wanted.name());
                let (kernel, tables) = described.kernel(kit, DECODE, &name)?;
                Ok(of(wanted, ranges, Kind::Packed { kernel, tables }))
            }
        }
    }

    /// Bytes of workspace for `rows` of its rows, a multiple of 64.
    pub fn workspace_bytes(&self, rows: usize) -> usize {
        match self.kind {
            Kind::Stored => 0,
            _ => (rows * self.size[1] * self.dtype.bytes() as usize).next_multiple_of(64),
        }
    }

    /// The address of the values of `count` rows from row `begin` on, after a launch that puts them
    /// into the workspace at `workspace` if they have to be made.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn values(
        &self,
        call: &Call<'_>,
        workspace: u64,
        [begin, count]: [usize; 2],
    ) -> Result<u64> {
        let [rows, columns] = self.size;
        let window = [begin, count];
        let (begin, count) = (begin * columns, count * columns);
        let start = || address(call.param_place(self.first));
        match &self.kind {
            Kind::Stored => Ok(start() + begin as u64 * self.dtype.bytes()),
            Kind::Cast { kernel, bytes } => {
                let from = start() + (begin * bytes) as u64;
                let arguments = Arguments::new().with(from).with(workspace);
                kernel.launch_tiles(count, &arguments.with(count as i64))?;
                Ok(workspace)
            }
            Kind::Packed { kernel, tables } => {
                let segments = Segments::of(call, self.first, self.ranges);
                let arguments = Arguments::new().with_words(&segments.and(tables));
                let arguments = arguments.with(workspace).with(begin as i64);
                let arguments = arguments.with(count as i64);
                let arguments = arguments.with(Shape([rows as u64, columns as u64]));
                let blocks = count.div_ceil(DECODED) as u64;
                kernel.launch([blocks, 1, 1], tables.shared_bytes(), &arguments)?;
                Ok(workspace)
            }
            Kind::OnHost(weight) => {
                weight.decode(call, self.first, window, workspace)?;
                Ok(workspace)
            }
        }
    }

    /// The address of all values; see [`Weight::values`].
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn all(&self, call: &Call<'_>, workspace: u64) -> Result<u64> {
        self.values(call, workspace, [0, self.size[0]])
    }
}

/// What decodes param `index` on the host, where the user asks for it and the card cannot.
pub fn on_host<'a>(
    asked: &Asked<'_>,
    kit: &'a Kit,
    index: usize,
    format: &Format,
) -> Option<&'a Arc<HostDecode>> {
    let is_open = format.decoding == Decoding::Callback;
    let is_open = is_open && asked.request.device_code_of(index).is_none();
    kit.host_decode.as_ref().filter(|_| is_open)
}

/// The address of a launch's workspace, 0 where it has none.
pub fn workspace(call: &Call<'_>) -> u64 {
    call.workspace_place().map_or(0, address)
}
