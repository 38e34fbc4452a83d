//! An op of the kit, what its check asserts, and its cases.

use super::case::OpCase;
use super::draw::Draw;

/// An op and its cases: all of the kit, or one of a seed.
pub struct OpCheck {
    /// Name of its check: `op.`, the op, and where its version is another than 1, that, as in
    /// `op.linear.2`.
    pub name: &'static str,
    /// What the check asserts.
    pub asserts: &'static str,
    pub(super) cases: fn(&Draw) -> Vec<OpCase>,
}
