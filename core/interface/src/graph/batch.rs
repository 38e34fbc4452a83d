//! Names and types of the tensors that every micro-batch has.

/// Token ids, `[T]` i32.
pub const TOKENS: &str = "tokens";
/// Position of each token in its sequence, `[T]` i32.
pub const POSITIONS: &str = "positions";
/// Start of each sequence and the end of the last, `[S + 1]` i32.
pub const CU_SEQLENS: &str = "cu_seqlens";
/// The token to predict at each position, `[T]` i32; -100 where the loss is not counted.
pub const LABELS: &str = "labels";
/// Index of each token's sequence within the optimizer step, over all ranks, `[T]` i32.
pub const SEQUENCES: &str = "sequences";
