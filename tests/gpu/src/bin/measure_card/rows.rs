//! Results of a part -> lines of JSON on the standard output, which the run collects.

use std::io::Write;

use anyhow::Result;
use serde_json::Value as Json;

/// Where a part puts its results: a line of JSON each, on the standard output.
pub struct Rows;

impl Rows {
    /// Adds a result. One that is out stays where the part is ended later.
    ///
    /// # Errors
    /// Where the output is closed.
    pub fn add(&mut self, row: &Json) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{row}")?;
        out.flush()?;
        Ok(())
    }
}
