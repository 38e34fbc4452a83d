//! What a kernel's result is added to.

/// What a result is added to, element by element.
#[derive(Clone, Copy, Debug)]
pub enum Added<'a, E> {
    /// Nothing.
    Nothing,
    /// What the output holds.
    Output,
    /// Values with the output's stride.
    Values(&'a [E]),
}

impl<E> Added<'_, E> {
    /// Whether it belongs to an output of `len` elements.
    pub(crate) fn fits(&self, len: usize) -> bool {
        match self {
            Added::Values(values) => values.len() == len,
            Added::Nothing | Added::Output => true,
        }
    }

    /// The same for `len` elements of the output from `first` on.
    #[inline(always)]
    pub(crate) fn part(&self, first: usize, len: usize) -> Self {
        match self {
            Added::Values(values) => Added::Values(&values[first..first + len]),
            Added::Nothing => Added::Nothing,
            Added::Output => Added::Output,
        }
    }
}
