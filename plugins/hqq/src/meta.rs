//! The scales and zeros of a weight -> the segments that hold them.

use espalier_interface::format::{BlockMap, BlockValues, SegmentSpec};
use espalier_interface::{DType, PluginError, Result};
use half::{bf16, f16};

use crate::code::code_bits;
use crate::grouping::{Affine, Axis, Grouping};
use crate::problem::Problem;
use crate::start::{StartZero, start};

/// How scales and zeros are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaStore {
    /// One number a group: f32, f16 or bf16.
    Plain(DType),
    /// Scales in f32; zeros in 8 bits, with one scale and one zero for all of them.
    ZeroEightBit,
    /// Both in 8 bits: zeros as above, each 128th of the scales with a separate scale and zero.
    EightBit,
}

/// Scales that share a scale; they are a stride apart, as with hqq's default axis 0.
pub const SCALE_GROUP: usize = 128; // hqq 0.1.7 core/quantize.py, scale_quant_params["group_size"]
/// The largest 8-bit code.
const TOP: f32 = 255.0;

impl MetaStore {
    /// The store of that name; none where there is no such store.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f32" => MetaStore::Plain(DType::F32),
            "f16" => MetaStore::Plain(DType::F16),
            "bf16" => MetaStore::Plain(DType::BF16),
            "zero-8bit" => MetaStore::ZeroEightBit,
            "8bit" => MetaStore::EightBit,
            _ => return None,
        })
    }

    /// Whether hqq quantizes zeros or scales again.
    pub fn is_quantized(self) -> bool {
        !matches!(self, MetaStore::Plain(_))
    }

    /// The segments of `count` groups, the first of which has number `first`, with the segments of
    /// scale and zero.
    ///
    /// # Errors
    /// `INVALID` where 8-bit scales need another number of groups.
    pub fn segments(
        self,
        count: usize,
        first: usize,
    ) -> Result<(Vec<SegmentSpec>, BlockValues, BlockValues)> {
        let len = count as u64;
        let (mut segments, scale) = match self {
            MetaStore::Plain(dtype) => plain("scale", dtype, len, first),
            MetaStore::ZeroEightBit => plain("scale", DType::F32, len, first),
            MetaStore::EightBit => {
                let groups = scale_groups(count)?;
                affine("scale", groups, len, first)
            }
        };
        let first = first + segments.len();
        let (zero_segments, zero) = match self {
            MetaStore::Plain(dtype) => plain("zero", dtype, len, first),
            _ => affine("zero", zero_groups(count), len, first),
        };
        segments.extend(zero_segments);
        Ok((segments, scale, zero))
    }

    /// Bytes of workspace that [`MetaStore::write`] needs for `count` groups.
    pub fn workspace(self, count: usize) -> usize {
        match self {
            MetaStore::Plain(_) => 0,
            // The scale and the zero of the numbers' groups; for scales, the largest number of
            // groups.
            MetaStore::ZeroEightBit => 2,
            MetaStore::EightBit => 2 * (count / SCALE_GROUP).max(1),
        }
    }

    /// Fills the segments. `numbers.scale` is that of decoding; `room`, [workspace] f32.
    ///
    /// # Errors
    /// `INVALID` where a number is too large for its type.
    pub fn write(
        self,
        numbers: Affine,
        problem: &Problem,
        segments: &mut [&mut [u8]],
        room: &mut [f32],
    ) -> Result<()> {
        match (self, segments) {
            (MetaStore::Plain(dtype), [scale, zero]) => {
                store("scale", numbers.scale, dtype, scale)?;
                store("zero", numbers.zero, dtype, zero)
            }
            (MetaStore::ZeroEightBit, [scale, zero @ ..]) => {
                store("scale", numbers.scale, DType::F32, scale)?;
                let groups = zero_groups(numbers.zero.len());
                quantize(numbers.zero, groups, problem, zero, room)
            }
            (MetaStore::EightBit, [codes, scales, zeros, zero @ ..]) => {
                let groups = scale_groups(numbers.scale.len())?;
                let scale = &mut [&mut **codes, &mut **scales, &mut **zeros];
                quantize(numbers.scale, groups, problem, scale, room)?;
                let groups = zero_groups(numbers.zero.len());
                quantize(numbers.zero, groups, problem, zero, room)
            }
            (_, segments) => panic!("{} segments are not of this format", segments.len()),
        }
    }
}

/// One group of all zeros.
fn zero_groups(count: usize) -> Grouping {
    Grouping {
        axis: Axis::Consecutive,
        size: count,
        count: 1,
    }
}

fn scale_groups(count: usize) -> Result<Grouping> {
    if !count.is_multiple_of(SCALE_GROUP) {
        return Err(PluginError::invalid(format!(
            "8-bit scales come in groups of {SCALE_GROUP}, which do not divide the weight's {count}; set meta = \
             \"zero-8bit\" or \"f32\""
        )));
    }
    Ok(Grouping {
        axis: Axis::Strided,
        size: SCALE_GROUP,
        count: count / SCALE_GROUP,
    })
}

fn plain(name: &str, dtype: DType, len: u64, first: usize) -> (Vec<SegmentSpec>, BlockValues) {
    let segments = vec![SegmentSpec::new(name, dtype, len)];
    (segments, BlockValues::Stored { segment: first })
}

fn affine(name: &str, groups: Grouping, len: u64, first: usize) -> (Vec<SegmentSpec>, BlockValues) {
    let count = groups.count as u64;
    let segments = vec![
        SegmentSpec::new(name, DType::U8, len),
        SegmentSpec::new(&format!("{name}_scale"), DType::F32, count),
        SegmentSpec::new(&format!("{name}_zero"), DType::F32, count),
    ];
    let values = BlockValues::Affine {
        codes: first,
        groups: match groups.count {
            1 => BlockMap::Rows,
            _ => groups.block_map(),
        },
        scales: first + 1,
        zeros: first + 2,
    };
    (segments, values)
}

/// Writes `numbers` as `dtype`.
fn store(what: &str, numbers: &[f32], dtype: DType, bytes: &mut [u8]) -> Result<()> {
    let short = |narrow: fn(f32) -> (u16, bool), bytes: &mut [u8]| {
        let mut fits = true;
        for (bytes, &x) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
            let (bits, finite) = narrow(x);
            fits &= finite;
            *bytes = bits.to_le_bytes();
        }
        fits
    };
    let fits = match dtype {
        DType::F16 => short(
            |x| (f16::from_f32(x).to_bits(), f16::from_f32(x).is_finite()),
            bytes,
        ),
        DType::BF16 => short(
            |x| (bf16::from_f32(x).to_bits(), bf16::from_f32(x).is_finite()),
            bytes,
        ),
        _ => {
            for (bytes, &x) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
                *bytes = x.to_le_bytes();
            }
            true
        }
    };
    if fits {
        return Ok(());
    }
    let largest = numbers.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    Err(PluginError::invalid(format!(
        "a {what} of {largest:e} does not fit {dtype}: a group of its weights is far from zero in a narrow range; \
         set meta = \"f32\""
    )))
}

/// hqq's 8-bit quantization of `numbers` without the solver: codes, scales and zeros.
///
/// # Source
/// hqq 0.1.7 `core/quantize.py`, `HQQLinear.quantize` and `hqq_base_quant_config`.
fn quantize(
    numbers: &[f32],
    groups: Grouping,
    problem: &Problem,
    segments: &mut [&mut [u8]],
    room: &mut [f32],
) -> Result<()> {
    let [codes, scales, zeros] = segments else {
        panic!(
            "{} segments are not codes, scales and zeros",
            segments.len()
        );
    };
    let inner = Problem {
        weight: numbers,
        groups,
        top: TOP,
        ..*problem
    };
    let (scale, zero) = room[..2 * groups.count].split_at_mut(groups.count);
    start(&inner, StartZero::Exact, scale, zero)?;
    let affine = Affine { scale, zero };
    groups.each(0, numbers, affine, codes, |code, x, scale, zero| {
        *code = code_bits(x, scale, zero, TOP) as u8;
    });
    scale.iter_mut().for_each(|scale| *scale = 1.0 / *scale);
    store("scale", scale, DType::F32, scales)?;
    store("zero", zero, DType::F32, zeros)
}
