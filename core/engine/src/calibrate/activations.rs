//! The activations of all calibration rows between two units.

use espalier_interface::graph::batch::{self, LengthPositions};
use espalier_interface::graph::{Graph, Source};

use crate::Error;
use crate::device_graph::DeviceGraph;
use crate::error::{BackendCall, model_failure};
use espalier_interface::PluginError;

/// The name of what a unit passes to the next.
const HIDDEN: &str = "hidden";

/// The rows and, from the first unit on, the hidden states of each.
pub struct Activations<'a> {
    rows: &'a [Vec<i32>],
    /// `[T, D]` of each row, as bytes of the compute dtype.
    hidden: Vec<Vec<u8>>,
}

impl<'a> Activations<'a> {
    /// Rows before the first unit.
    pub fn of_rows(rows: &'a [Vec<i32>]) -> Self {
        Activations {
            rows,
            hidden: vec![Vec::new(); rows.len()],
        }
    }

    /// Writes the inputs of `graph` for a row; returns its number of tokens.
    ///
    /// # Errors
    /// An input that calibration cannot give; errors of the device.
    pub fn feed(&self, graph: &Graph, device: &DeviceGraph<'_>, row: usize) -> Result<u64, Error> {
        let tokens = &self.rows[row];
        let bytes = |numbers: &mut dyn Iterator<Item = i32>| -> Vec<u8> {
            numbers.flat_map(i32::to_le_bytes).collect()
        };
        let count = tokens.len() as i32;
        let by_length = |name: &str| {
            let which = LengthPositions::of_name(name)?;
            let is_of_row = which.has(tokens.len() as u64);
            Some((0..count).map(move |position| if is_of_row { position } else { 0 }))
        };
        for input in &graph.inputs {
            let data = match &input.source {
                Source::Previous(name) if name == HIDDEN => self.hidden[row].clone(),
                Source::Batch(name) if name == batch::TOKENS => bytes(&mut tokens.iter().copied()),
                Source::Batch(name) if name == batch::POSITIONS => bytes(&mut (0..count)),
                Source::Batch(name) if name == batch::CU_SEQLENS => {
                    bytes(&mut [0, count].into_iter())
                }
                Source::Batch(name) if name == batch::SEQUENCES => {
                    bytes(&mut std::iter::repeat_n(0, tokens.len()))
                }
                Source::Batch(name) if by_length(name).is_some() => {
                    bytes(&mut by_length(name).into_iter().flatten())
                }
                other => {
                    return Err(model_failure(PluginError::unsupported(format!(
                        "graph `{}` reads {other:?}, which calibration does not have",
                        graph.name
                    ))));
                }
            };
            device.write(input.value, &data).during("upload")?;
        }
        Ok(tokens.len() as u64)
    }

    /// Keeps what the unit passes on for a row.
    ///
    /// # Errors
    /// A unit that passes nothing on; errors of the device.
    pub fn take(&mut self, device: &DeviceGraph<'_>, row: usize) -> Result<(), Error> {
        let graph = device.graph();
        let output = graph.outputs.iter().find(|output| output.name == HIDDEN);
        let output = output.ok_or_else(|| {
            model_failure(PluginError::invalid(format!(
                "graph `{}` passes no `{HIDDEN}` on",
                graph.name
            )))
        })?;
        let tokens = self.rows[row].len() as u64;
        self.hidden[row] = device.read_bytes(output.value, tokens).during("download")?;
        Ok(())
    }
}
