//! The numbers of a micro-batch that its launches take, and windows of its tokens.

use espalier_plan::plan::Labelled;

/// Numbers of a micro-batch that launches take.
#[derive(Clone)]
pub(super) struct Numbers {
    /// Its place in its sweep, from 0.
    pub(super) slot: u64,
    pub(super) tokens: u64,
    /// Those that the head works on alone.
    pub(super) labelled: Option<Labelled>,
    pub(super) sequences: u64,
    /// Pairs of a token and one that it attends to.
    pub(super) pairs: u64,
    pub(super) seed: u64,
    pub(super) step: u64,
    pub(super) loss_factor: f64,
    /// Dropout is off.
    pub(super) evaluate: bool,
}

/// A run of tokens that one launch works on.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) first: u64,
    pub(super) tokens: u64,
}

impl Window {
    pub(super) fn whole(tokens: u64) -> Self {
        Window { first: 0, tokens }
    }
}

impl Numbers {
    /// The micro-batch in windows of at most `most` tokens.
    pub(super) fn windows(&self, most: u64) -> impl Iterator<Item = Window> + use<> {
        let tokens = self.tokens;
        (0..tokens.div_ceil(most.max(1))).map(move |index| Window {
            first: index * most,
            tokens: most.min(tokens - index * most),
        })
    }
}
