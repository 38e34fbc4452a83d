//! The compute backend `candle`: the ops of `espalier-tensor-ops`, computed by candle-core on the
//! processor, in the buffers and streams of `espalier-host-device`.
//!
//! candle cannot use memory that is not its own. So operands are copied to its tensors and results
//! back; the bytes are counted.

mod backend;
mod copies;
mod library;
mod plugin;
#[cfg(test)]
mod temporaries;
mod transfer;

pub use backend::CandleBackend;
