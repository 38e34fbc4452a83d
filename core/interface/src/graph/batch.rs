//! Names and types of the tensors that every micro-batch has, and of those that it has where a
//! graph reads them.

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

/// Positions of the tokens of sequences of some lengths, and 0 for all other tokens, `[T]` i32.
///
/// A micro-batch has such a tensor where a graph reads it by its [`name`](Self::name). Position 0
/// turns nothing: a rotation by `UpTo(n)` and one by `Beyond(n)` after it turn each sequence by the
/// frequencies that belong to its length.
///
/// The length is that of the whole sequence. While text is generated that is its tokens so far, the
/// cached ones included; when it grows past the limit, they are computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LengthPositions {
    /// Of sequences of at most so many tokens.
    UpTo(u64),
    /// Of longer sequences.
    Beyond(u64),
}

impl LengthPositions {
    /// The name of the tensor: `positions_up_to_4096`, `positions_beyond_4096`.
    pub fn name(self) -> String {
        match self {
            LengthPositions::UpTo(limit) => format!("positions_up_to_{limit}"),
            LengthPositions::Beyond(limit) => format!("positions_beyond_{limit}"),
        }
    }

    /// The tensor called `name`; none for other names.
    pub fn of_name(name: &str) -> Option<Self> {
        let limit = name.rsplit('_').next()?.parse().ok()?;
        let both = [LengthPositions::UpTo(limit), LengthPositions::Beyond(limit)];
        both.into_iter().find(|one| one.name() == name)
    }

    /// The number of tokens that tells sequences apart.
    pub fn limit(self) -> u64 {
        match self {
            LengthPositions::UpTo(limit) | LengthPositions::Beyond(limit) => limit,
        }
    }

    /// Whether it has the positions of a sequence of `tokens` tokens.
    pub fn has(self, tokens: u64) -> bool {
        match self {
            LengthPositions::UpTo(limit) => tokens <= limit,
            LengthPositions::Beyond(limit) => tokens > limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_none() {
        for one in [LengthPositions::UpTo(0), LengthPositions::Beyond(131_072)] {
            assert_eq!(LengthPositions::of_name(&one.name()), Some(one));
        }
        for other in [
            "positions",
            "positions_up_to_",
            "positions_up_to_04",
            "positions_up_to_-4",
            "positions_beyond_4.0",
            "other_positions_up_to_4",
        ] {
            assert_eq!(LengthPositions::of_name(other), None, "{other}");
        }
    }

    #[test]
    fn every_length_belongs_to_one_of_both() {
        for (tokens, short) in [(1, true), (16, true), (17, false)] {
            assert_eq!(LengthPositions::UpTo(16).has(tokens), short);
            assert_eq!(LengthPositions::Beyond(16).has(tokens), !short);
        }
    }
}
