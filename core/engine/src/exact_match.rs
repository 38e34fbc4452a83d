//! How many questions a model answered word for word.

/// The questions that a model answered word for word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactMatch {
    /// Right ones.
    pub right: u64,
    /// All that were asked.
    pub asked: u64,
}

impl ExactMatch {
    /// `right / asked`.
    pub fn share(self) -> f64 {
        self.right as f64 / self.asked.max(1) as f64
    }
}

impl std::fmt::Display for ExactMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.right, self.asked)
    }
}
