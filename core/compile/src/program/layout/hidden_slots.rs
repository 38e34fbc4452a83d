//! Places in the arena for the hidden states and gradients that pass from unit to unit.

/// Two places for hidden states, then two for their gradients. Units take turns: even indices use
/// the first of a pair, odd ones the second, so that a unit never writes over its own input.
pub(super) struct HiddenSlots {
    /// First byte in the arena.
    pub begin: u64,
    /// Bytes of each place for a hidden state.
    pub hidden_bytes: u64,
    /// Bytes of each place for a gradient.
    pub gradient_bytes: u64,
}

impl HiddenSlots {
    /// Bytes of all four places.
    pub fn bytes(&self) -> u64 {
        2 * (self.hidden_bytes + self.gradient_bytes)
    }

    /// First byte of the hidden state that unit `unit` makes.
    pub fn hidden(&self, unit: usize) -> u64 {
        self.begin + (unit as u64 % 2) * self.hidden_bytes
    }

    /// First byte of the gradient of that hidden state.
    pub fn gradient(&self, unit: usize) -> u64 {
        self.begin + 2 * self.hidden_bytes + (unit as u64 % 2) * self.gradient_bytes
    }
}
