//! Tokens and the cache of earlier ones -> the logits of the wanted tokens, by the schedule of an
//! evaluation: each unit's weights come to the device as they do there.

use espalier_compile::program::{Extent, Program, ValueLocation};
use espalier_data::MicroBatch;
use espalier_interface::schedule::{Act, Action};
use espalier_interface::{PluginError, Stream};
use espalier_plan::plan::Generation;
use espalier_plan::step_plan::Task;

use super::prepared_kernels::PreparedUnit;
use super::window::{Numbers, Window};
use super::{Executor, Pass, StepPosition};
use crate::error::{BackendCall, Error, Result, model_failure};

impl Executor {
    /// What the plan lets this executor generate at once.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }

    /// Runs the next tokens of some sequences. Passes the logits of each token in `wanted` to
    /// `take`, with its index in `wanted`: `[V]`, as f64 of the compute dtype's values. The head
    /// runs for these tokens only.
    ///
    /// `micro.sequences` names the cache slot of each sequence, `micro.positions` the place of a
    /// token in it. Labels are not read. A slot keeps its content until its positions are written
    /// again or a step runs.
    ///
    /// All ranks of a run call this at once, each with tokens of its own: those of other ranks may
    /// be others, or none.
    ///
    /// # Panics
    /// Where `wanted` is not strictly increasing or exceeds the tokens.
    ///
    /// # Errors
    /// `Error::Plugin` for a plan that does not generate, a model that names no output, and a call
    /// to the backend that failed.
    pub fn infer(
        &self,
        micro: &MicroBatch,
        wanted: &[u64],
        take: &mut dyn FnMut(usize, &[f64]),
    ) -> Result<()> {
        assert!(wanted.is_sorted_by(|a, b| a < b), "tokens out of order");
        assert!(
            wanted
                .last()
                .is_none_or(|&last| last < micro.tokens.len() as u64)
        );
        let (program, units) = self.generating()?;
        let position = StepPosition {
            seed: 0,
            step: 0,
            first: true,
            last: true,
        };
        let numbers = self.begin((0, micro), None, Pass::Evaluate, position)?;
        let sweep = std::slice::from_ref(&numbers);
        let head = program.units.len() - 1;
        let mut compute = |task: &Task| {
            let Action { act, unit, .. } = task.action;
            if act != Act::Forward {
                return self.transfer(task, sweep);
            }
            self.since_wait.given(act, unit);
            if unit == head {
                let hidden = program.units[head - 1].hidden;
                self.gather_rows(hidden.ok_or_else(|| missing("hidden"))?, wanted)?;
                let rows = Numbers {
                    tokens: wanted.len() as u64,
                    ..numbers.clone()
                };
                return self.logits_of(program, (&units[head], task), &rows, take);
            }
            let mut launches = units[unit].forward.iter();
            let window = Window::whole(numbers.tokens);
            launches.try_for_each(|launch| self.launch(launch, &numbers, window, &task.regions))
        };
        self.walk_sweep((Pass::Evaluate, position), sweep, &mut compute)?;
        if wanted.is_empty() {
            // Nothing was read, but other ranks wait for this one's calls on its device, which may
            // run no earlier than the host waits for them.
            self.lanes().catch_up()?;
            self.complete(Stream(0))?;
        }
        Ok(())
    }

    /// The program that generates, and its kernels.
    fn generating(&self) -> Result<(&Program, &[PreparedUnit])> {
        match (&self.generator, self.generation) {
            (Some(program), _) => Ok((program, &self.prepared.generator)),
            (None, Some(_)) => Ok((&self.program, &self.prepared.units)),
            (None, None) => {
                Err(PluginError::invalid("this plan generates nothing")).during("launch")
            }
        }
    }

    /// Moves the rows `wanted` of a value to its first rows.
    fn gather_rows(&self, place: ValueLocation, wanted: &[u64]) -> Result<()> {
        if !matches!(place.extent, Extent::PerToken(_)) {
            return Err(missing("hidden"));
        }
        // Rows are increasing, so none is overwritten before it has moved.
        let wanted = wanted.iter().map(|&from| from as usize);
        let mut moves = wanted.enumerate().filter(|(to, from)| to != from);
        moves.try_for_each(|(to, from)| self.copy_rows(0, (place, from), (place, to), 1))
    }

    /// Runs the head on the first hidden states, as many as `numbers` has tokens.
    fn logits_of(
        &self,
        program: &Program,
        (head, task): (&PreparedUnit, &Task),
        numbers: &Numbers,
        take: &mut dyn FnMut(usize, &[f64]),
    ) -> Result<()> {
        let unit = program.units.last().expect("a model has a head");
        let place = unit.logits.ok_or_else(|| missing("logits"))?;
        let mut row = 0;
        for window in numbers.windows(unit.max_tokens) {
            for launch in &head.forward {
                self.launch(launch, numbers, window, &task.regions)?;
            }
            let bytes = place.extent.bytes(window.tokens, 0);
            let range = self.storage.arena_range(place.offset, bytes);
            let logits = self.read(range, self.dtypes.compute)?;
            for logits in logits.chunks_exact(logits.len() / window.tokens as usize) {
                take(row, logits);
                row += 1;
            }
        }
        Ok(())
    }
}

fn missing(name: &str) -> Error {
    let message = format!("the model names no output `{name}`");
    model_failure(PluginError::invalid(message))
}
