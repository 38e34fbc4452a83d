//! A micro-batch without training -> each token's loss and whether it was predicted, and windows of
//! logits.

use std::ops::Range;

use espalier_compile::program::ValueLocation;
use espalier_data::MicroBatch;
use espalier_interface::{DType, PluginError};

use super::window::{Numbers, Window};
use super::{Executor, LossSum, Pass, StepPosition};
use crate::error::{Result, model_failure};

/// Each token's result, `[T]`; 0 and false where a token is not trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLosses {
    /// Losses, in nats.
    pub losses: Vec<f64>,
    /// Whether the likeliest prediction was right.
    pub correct: Vec<bool>,
}

impl TokenLosses {
    /// The sums over `tokens` of the micro-batch, in their order.
    pub fn sum(&self, micro: &MicroBatch, tokens: Range<usize>) -> LossSum {
        let labels = &micro.labels[tokens.clone()];
        let correct = &self.correct[tokens.clone()];
        LossSum {
            loss: self.losses[tokens].iter().sum(),
            correct: correct.iter().filter(|&&correct| correct).count() as u64,
            trained: labels.iter().filter(|&&label| label >= 0).count() as u64,
        }
    }
}

/// The logits of some tokens of a micro-batch, on the device until the head takes the next ones.
pub struct LogitsWindow<'a> {
    executor: &'a Executor,
    window: Window,
}

/// What is called with each window of logits.
pub type OnLogits<'a> = &'a mut dyn FnMut(&LogitsWindow<'_>) -> Result<()>;

impl<'a> LogitsWindow<'a> {
    /// The logits of `window` that the head of `executor` has just computed.
    pub(super) fn new(executor: &'a Executor, window: Window) -> Self {
        LogitsWindow { executor, window }
    }

    /// The tokens whose logits these are.
    pub fn tokens(&self) -> Range<u64> {
        self.window.first..self.window.first + self.window.tokens
    }

    /// Bytes of a token's logits, `[V]`.
    ///
    /// # Errors
    /// `Error::Plugin` where the head names no logits.
    pub fn row_bytes(&self) -> Result<u64> {
        self.executor.logits_row_bytes()
    }

    /// The dtype of the logits.
    pub fn dtype(&self) -> DType {
        self.executor.logits_dtype()
    }

    /// The logits of `tokens`, `[tokens, V]` row major, as they are on the device: elements of
    /// [`LogitsWindow::dtype`].
    ///
    /// # Panics
    /// Where `tokens` leave the window, or `out` is not as long.
    ///
    /// # Errors
    /// `Error::Plugin` where the head names no logits, or a call to the backend failed.
    pub fn read(&self, tokens: Range<u64>, out: &mut [u8]) -> Result<()> {
        let within = self.tokens();
        assert!(within.start <= tokens.start && tokens.end <= within.end);
        let row = self.row_bytes()?;
        let place = self.executor.logits_place()?;
        let offset = place.offset + (tokens.start - within.start) * row;
        let bytes = (tokens.end - tokens.start) * row;
        assert_eq!(out.len() as u64, bytes, "bytes of the logits asked for");
        let range = self.executor.storage.arena_range(offset, bytes);
        self.executor.download_result(range, out)
    }
}

impl Executor {
    /// Runs a micro-batch forward without dropout, and passes the logits of each window of tokens
    /// to `look`. Without one, those of tokens without a label may be left out.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed. The error of `look`.
    pub fn evaluate(
        &self,
        micro: &MicroBatch,
        position: StepPosition,
        look: Option<OnLogits<'_>>,
    ) -> Result<TokenLosses> {
        let sweep = self.pass(&[micro], Pass::Evaluate, position, look)?;
        self.token_losses(&sweep[0])
    }

    /// The dtype of logits on the device.
    pub fn logits_dtype(&self) -> DType {
        self.dtypes.compute
    }

    /// Bytes of a token's logits on the device, `[V]`.
    ///
    /// # Errors
    /// `Error::Plugin` where the head names no logits.
    pub fn logits_row_bytes(&self) -> Result<u64> {
        Ok(self.logits_place()?.extent.bytes(1, 0))
    }

    fn logits_place(&self) -> Result<ValueLocation> {
        let head = self.program.units.last().expect("a model has a head");
        let missing = || PluginError::invalid("the model's head names no output `logits`");
        head.logits.ok_or_else(|| model_failure(missing()))
    }

    /// Reads the loss of each token of the last pass, and whether it was predicted.
    pub(super) fn token_losses(&self, numbers: &Numbers) -> Result<TokenLosses> {
        let arena = &self.program.arena;
        let (Some(loss), Some(correct)) = (arena.loss, arena.correct) else {
            let missing = PluginError::invalid("the model's head names no output `loss`");
            return Err(model_failure(missing));
        };
        let of_head = numbers.of_head();
        // One download takes both, which are adjacent.
        let [loss, correct] = [loss, correct].map(|place| {
            let bytes = place.extent.bytes(of_head.tokens, 0);
            place.offset..place.offset + bytes
        });
        let first = loss.start.min(correct.start);
        let mut bytes = vec![0; (loss.end.max(correct.end) - first) as usize];
        let begin = self.in_arena(numbers.slot, first);
        let range = self.storage.arena_range(begin, bytes.len() as u64);
        self.download_result(range, &mut bytes)?;
        let within = |place: Range<u64>| {
            &bytes[(place.start - first) as usize..(place.end - first) as usize]
        };
        let hits = within(correct).chunks_exact(4);
        Ok(TokenLosses {
            losses: numbers.of_all(espalier_numeric::numbers(within(loss), self.dtypes.reduce)),
            correct: numbers.of_all(hits.map(|hit| hit.iter().any(|&byte| byte != 0)).collect()),
        })
    }
}
