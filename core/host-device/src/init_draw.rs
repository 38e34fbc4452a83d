//! The attributes of `init` -> how its numbers are drawn.

use espalier_interface::Result;

use crate::Asked;

/// How `init` draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InitDraw {
    /// This number everywhere.
    Constant(f64),
    /// Uniform numbers in `[-bound, bound)`.
    Uniform(f64),
    /// Normal numbers with this standard deviation.
    Normal(f64),
}

impl InitDraw {
    /// What a request of `init` asks for.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a kind that is not known.
    pub fn of(asked: &Asked<'_>) -> Result<Self> {
        let attributes = asked.attributes();
        Ok(match attributes.text("kind") {
            Some("zeros") => InitDraw::Constant(0.0),
            Some("ones") => InitDraw::Constant(1.0),
            Some("uniform") => InitDraw::Uniform(attributes.number("bound")?),
            Some("normal") => InitDraw::Normal(attributes.number("std")?),
            other => {
                let other = other.unwrap_or("nothing");
                let known = "zeros, ones, uniform or normal";
                return Err(asked.unsupported(format!("kind `{other}`, expected {known}")));
            }
        })
    }
}
