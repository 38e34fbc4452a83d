//! What operands of a timed launch hold: numbers of a size as in training, drawn once and repeated.

use espalier_interface::format::SegmentSpec;
use espalier_interface::graph::Dim;
use espalier_interface::op::OpDefinition;
use espalier_interface::{DType, WeightLayout};

use crate::op_shapes::Shaped;

/// Most bytes that are drawn; a larger operand repeats them.
const MOST_DRAWN: u64 = 1 << 20;

/// An operand of a launch.
pub struct Filled {
    /// Bytes.
    pub bytes: u64,
    /// How often a launch moves them at least.
    pub moved: u64,
    /// What it begins with; a larger operand repeats it.
    pub drawn: Vec<u8>,
}

/// The operands of a launch in its order.
pub fn operands(of: &Shaped, definition: &OpDefinition) -> Vec<Filled> {
    let request = &of.request;
    let mut all = Vec::new();
    for (index, operand) in request.inputs.iter().enumerate() {
        let count = elements(of, &operand.shape);
        let content = match definition.input_name(index) {
            "positions" => Content::Positions(of.sequence),
            "cu_seqlens" => Content::Boundaries(of.sequence),
            "tokens" | "labels" => Content::Below(vocabulary(of)),
            "lse" => Content::Near(10.0),
            _ => Content::Normal(1.0),
        };
        all.push(filled(count, operand.dtype, content, 1));
    }
    for param in &request.params {
        let count = param.shape.iter().product();
        match &param.layout {
            WeightLayout::Dense(dtype) => {
                let mut dense = filled(count, *dtype, Content::Normal(0.02), 1);
                if request.op == "embedding" {
                    // The rows of the tokens, which are as many as the output's.
                    dense.moved = 0;
                }
                all.push(dense);
            }
            WeightLayout::Packed(format) => {
                all.extend(format.segments.iter().map(segment));
            }
        }
    }
    for (index, operand) in request.outputs.iter().enumerate() {
        use espalier_interface::op::Writing;
        let writing = definition.outputs.get(index).map(|output| output.writing);
        let is_whole = writing == Some(Writing::Whole);
        let moved = match (is_whole, request.op.as_str()) {
            (true, "embedding") | (false, _) => 2,
            (true, _) => 1,
        };
        let count = elements(of, &operand.shape);
        all.push(filled(count, operand.dtype, Content::Near(1e-3), moved));
    }
    all
}

fn elements(of: &Shaped, shape: &[Dim]) -> u64 {
    let extents = shape.iter().map(|dim| match dim {
        Dim::Tokens => of.tokens,
        Dim::Boundaries => of.tokens.div_ceil(of.sequence.max(1)) + 1,
        Dim::Fixed(extent) => *extent,
    });
    extents.product()
}

/// Tokens that there are.
fn vocabulary(of: &Shaped) -> u64 {
    if let Some(param) = of.request.params.first() {
        return param.shape[0];
    }
    of.request.inputs[0]
        .shape
        .iter()
        .find_map(|dim| match dim {
            Dim::Fixed(extent) => Some(*extent),
            _ => None,
        })
        .unwrap_or(1)
}

/// A segment of a packed weight: codes of any value, scales as those of weights.
fn segment(of: &SegmentSpec) -> Filled {
    let content = if of.dtype.is_float() {
        Content::Near(0.02)
    } else {
        Content::Bytes
    };
    filled(of.len, of.dtype, content, 1)
}

/// What numbers are.
#[derive(Clone, Copy)]
enum Content {
    /// Normal with that deviation, nearly.
    Normal(f64),
    /// Within a tenth of that number.
    Near(f64),
    /// Natural numbers below that.
    Below(u64),
    /// Positions in sequences of that many tokens.
    Positions(u64),
    /// Where sequences of that many tokens begin.
    Boundaries(u64),
    /// Any bytes.
    Bytes,
}

fn filled(count: u64, dtype: DType, content: Content, moved: u64) -> Filled {
    let width = dtype.bytes();
    let drawn = (MOST_DRAWN / width.max(1)).min(count);
    let mut bits = Bits(0x9E37_79B9_7F4A_7C15);
    let mut bytes = Vec::with_capacity((drawn * width) as usize);
    for index in 0..drawn {
        let number = match content {
            Content::Normal(deviation) => deviation * bits.normal(),
            Content::Near(middle) => middle * (1.0 + 0.1 * bits.unit()),
            Content::Below(most) => (bits.next() % most) as f64,
            Content::Positions(sequence) => (index % sequence) as f64,
            Content::Boundaries(sequence) => (index * sequence) as f64,
            Content::Bytes => {
                bytes.extend((0..width).map(|_| bits.next() as u8));
                continue;
            }
        };
        put(&mut bytes, dtype, number);
    }
    Filled {
        bytes: count * width,
        moved,
        drawn: bytes,
    }
}

/// Appends a number in a dtype; bf16 and f16 are cut off, not rounded.
fn put(bytes: &mut Vec<u8>, dtype: DType, number: f64) {
    let single = (number as f32).to_bits();
    match dtype {
        DType::F64 => bytes.extend(number.to_le_bytes()),
        DType::F32 => bytes.extend(single.to_le_bytes()),
        DType::BF16 => bytes.extend(((single >> 16) as u16).to_le_bytes()),
        DType::I32 => bytes.extend((number as i32).to_le_bytes()),
        _ => bytes.extend(std::iter::repeat_n(number as u8, dtype.bytes() as usize)),
    }
}

/// Random bits: xorshift64.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from -1 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// The sum of three uniform numbers, whose deviation is 1.
    fn normal(&mut self) -> f64 {
        self.unit() + self.unit() + self.unit()
    }
}
