//! Quantizers with the blocks of GGUF's files: `q8-0` and `q4-k`. The numbers of a block lie before
//! its codes, so a weight has one segment, and the description says where each is.

mod q4_k;
mod q8_0;

use std::sync::{Arc, Mutex};

use espalier_interface::format::{
    BitOrder, BlockValues, CodeRows, Codes, Decoding, Format, RowOrder, SegmentSpec, Step,
    ValueSource,
};
use espalier_interface::{
    Component, DType, ErrorCode, Instance, PluginError, Quantizer, Result, Role, Services,
};

/// A kind of blocks.
struct Kind {
    name: &'static str,
    /// Elements of a block.
    elements: usize,
    /// Bytes of a block.
    bytes: usize,
    /// Where values come from and what changes them.
    decoding: fn() -> (ValueSource, Vec<Step>),
    /// Packs at most the elements of a block into zeros. Returns whether its numbers are finite.
    encode: fn(&[f32], &mut [u8]) -> bool,
}

impl Kind {
    /// `count` codes of `bits` bits in each block, from byte `start` of it on.
    fn codes(bytes: usize, bits: u32, count: u64, start: u64) -> Codes {
        let order = CodeRows {
            codes: count,
            bytes: bytes as u64,
            start,
            order: RowOrder::Stream,
        };
        Codes {
            segment: 0,
            bits,
            order: BitOrder::Rows(order),
        }
    }

    /// A number of f16 at byte `start` of each block.
    fn number(bytes: usize, start: u64) -> BlockValues {
        BlockValues::Interleaved {
            segment: 0,
            dtype: DType::F16,
            start,
            bytes: bytes as u64,
        }
    }
}

/// Blocks that one call of a parallel loop encodes.
const BLOCKS_AT_ONCE: usize = 64;

struct Gguf {
    kind: &'static Kind,
    services: Arc<dyn Services>,
}

impl Quantizer for Gguf {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let Kind {
            name,
            elements,
            bytes,
            ..
        } = *self.kind;
        let blocks = shape[0].saturating_mul(shape[1]).div_ceil(elements as u64);
        let (source, steps) = (self.kind.decoding)();
        let len = blocks.saturating_mul(bytes as u64);
        let format = Format {
            quantizer: name.to_owned(),
            shape,
            segments: vec![SegmentSpec::new("blocks", DType::U8, len)],
            decoding: Decoding::Steps { source, steps },
        };
        format.validate()?;
        Ok(format)
    }

    fn encode(
        &self,
        weight: &[f32],
        _: [u64; 2],
        segments: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> Result<()> {
        if let Some(at) = weight.iter().position(|x| !x.is_finite()) {
            let message = format!("element {at} is not finite");
            return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
        }
        let [segment] = segments else {
            return Err(PluginError::invalid("expected one segment"));
        };
        segment.fill(0);
        let Kind {
            elements, bytes, ..
        } = *self.kind;
        let pieces: Vec<_> = weight
            .chunks(elements * BLOCKS_AT_ONCE)
            .zip(segment.chunks_mut(bytes * BLOCKS_AT_ONCE))
            .map(Mutex::new)
            .collect();
        let too_large = Mutex::new(None);
        self.services.parallel_for(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().expect("each is taken once");
            let (weight, segment) = &mut *piece;
            let blocks = weight.chunks(elements).zip(segment.chunks_mut(bytes));
            for (at, (weight, block)) in blocks.enumerate() {
                if !(self.kind.encode)(weight, block) {
                    *too_large.lock().expect("nothing panics") = Some(index * BLOCKS_AT_ONCE + at);
                }
            }
        });
        match too_large.into_inner().expect("nothing panics") {
            None => Ok(()),
            Some(block) => Err(PluginError::new(
                ErrorCode::NOT_FINITE,
                format!("elements of block {block} are too large for a scale of f16"),
            )),
        }
    }
}

/// A component that packs blocks of a kind.
macro_rules! component {
    ($kind:path, $doc:literal) => {
        Component {
            name: $kind.name,
            role: Role::QUANTIZER,
            doc: $doc,
            options: &[],
            capabilities: &[],
            create: |_, services| {
                Ok(Instance::Quantizer(Box::new(Gguf {
                    kind: &$kind,
                    services,
                })))
            },
        }
    };
}

const Q8_0: Component = component!(q8_0::KIND, "GGUF's q8_0: 8 bits in blocks of 32");
const Q4_K: Component = component!(
    q4_k::KIND,
    "GGUF's q4_K but for the order of bits: 4 bits with scales and minima in blocks of 32"
);

espalier_interface::declare_plugin! { name: "gguf", components: &[Q8_0, Q4_K] }
