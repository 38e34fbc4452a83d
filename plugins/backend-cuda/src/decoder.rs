//! The description of a format, or its quantizer's device code -> what makes
//! `kernels/cuda/linear/decode.cuh` its decoder.

mod code_tables;
mod text;

use espalier_interface::format::{DeviceCode, Format};
use espalier_interface::{PluginError, Result};

use crate::kit::Kit;
use crate::modules::{Function, THREADS};
use crate::sources::Source;

use code_tables::CodeTables;
pub use code_tables::GivenTables;
use text::Text;

/// Elements of which all codes can be read at once.
pub const RUN: u64 = 16;

/// Elements that a thread of the decoder has at once, as the kernel has it.
const NEIGHBOURS: usize = 8;

/// Elements of a block of the decoder, as the kernel has it.
pub const DECODED: usize = 4 * NEIGHBOURS * THREADS as usize;

/// The decoder of a format.
pub struct Description {
    /// What stands before the kernel.
    pub definitions: String,
    /// Whether a thread reads the codes of 16 neighbours at once.
    pub has_runs: bool,
    tables: CodeTables,
    /// Whose format it is.
    quantizer: String,
    /// Whether its device code is among the definitions.
    has_code: bool,
}

impl Description {
    /// The decoder of `format`, which has `code` where it has no description.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a format that has neither.
    pub fn of(format: &Format, code: Option<&DeviceCode>) -> Result<Self> {
        let quantizer = format.quantizer.clone();
        if let Some((source, steps)) = format.stages() {
            let text = Text::of(format, &source, &steps);
            return Ok(Description {
                definitions: text.definitions,
                has_runs: text.has_runs,
                tables: text.tables,
                quantizer,
                has_code: false,
            });
        }
        let code = code.ok_or_else(|| without_code(&quantizer))?;
        Ok(Description {
            definitions: code_definitions(&quantizer, code),
            has_runs: true,
            tables: CodeTables::default(),
            quantizer,
            has_code: true,
        })
    }

    /// The kernel `name` of `source` with this decoder, and its tables.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled or loaded; the message names the quantizer, and has the
    /// compiler's lines of its device code. `OUT_OF_MEMORY` for tables in the card's memory.
    pub fn kernel(&self, kit: &Kit, source: Source, name: &str) -> Result<(Function, GivenTables)> {
        let kernel = kit.modules.function(source, &self.definitions, name);
        let (kernel, what) = if self.has_code {
            let kernel = kernel.and_then(Function::compiled);
            (kernel, "the device code of quantizer")
        } else {
            (kernel, "the decoder of this format of quantizer")
        };
        let kernel = kernel.map_err(|error| {
            let (quantizer, why) = (&self.quantizer, &error.message);
            let what = format!("{what} `{quantizer}` cannot be used: {why}");
            PluginError::new(error.code, what)
        })?;
        Ok((kernel, self.tables.given(kit)?))
    }
}

fn without_code(quantizer: &str) -> PluginError {
    PluginError::unsupported(format!(
        "quantizer `{quantizer}` describes no format and has no `device_code`, and its `decode` runs on the processor alone: backend `cuda` cannot read its weights; choose a version of it with `device_code` (docs/write-a-quantizer.md says how its author adds one), a quantizer with a described format, or backend `cpu`; or set backend.cuda.host_decode = true, which decodes on the processor at each use and is slow"
    ))
}

/// What stands before a kernel that decodes with a quantizer's code. The code has line numbers of
/// its own.
fn code_definitions(quantizer: &str, code: &DeviceCode) -> String {
    // A name for the compiler's messages.
    let name = quantizer.replace(|c: char| !c.is_ascii_graphic() || "\"\\".contains(c), "_");
    format!(
        "#define DEVICE_CODE\n#include \"segments.cuh\"\nnamespace device_code {{\n\
         #line 1 \"device code of quantizer {name}\"\n{}\n}}\n",
        code.cuda
    )
}
