//! Rows and a model, without training -> held-out loss, perplexity and token accuracy.

use std::time::Instant;

use espalier_compile::params::Param;
use espalier_config::ResolvedConfig;
use espalier_data::Counts;
use espalier_engine::exact_match::ExactMatch;
use espalier_engine::observer::{Event, Observer};
use espalier_interface::WeightLayout;
use espalier_plan::plan::Purpose;
use espalier_system::failure::UsageError;
use espalier_system::memory;
use espalier_system::stop::StopFlag;
use serde::Serialize;

use crate::session::{RunData, Session};
use crate::{Error, weights};

/// The result of an evaluation; as JSON the output of `host eval --json`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Mean loss over the trained tokens.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// Share of the trained tokens that the model ranks first.
    pub token_accuracy: f64,
    /// Sequences.
    pub sequences: u64,
    /// Their tokens, trained or not.
    pub tokens: u64,
    /// Trained tokens.
    pub trained_tokens: u64,
    /// Used and lost rows of the files.
    pub counts: Counts,
    /// Share of the asked rows with an exact answer; `None` where none were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact_match: Option<f64>,
    /// Rows that were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Bytes of all packed weights, including scales; `None` where none is packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed_bytes: Option<u64>,
    /// Bits per packed weight, including scales.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_weight: Option<f64>,
    /// The total time of the loss passes, in seconds.
    pub secs: f64,
    /// `tokens / secs`.
    pub tokens_per_sec: f64,
}

/// Evaluates the model, with its adapter if named, once on every row of `data.files`.
///
/// # Errors
/// Errors of opening or loading the session; [`Error::NotFinite`] for a loss that is not a number,
/// [`Error::Interrupted`] after a signal.
pub fn run(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Evaluation, Error> {
    let session = Session::open_for(resolved, Purpose::Evaluate, observer, stop)?;
    session.check_patterns(resolved)?;
    session
        .run
        .plan
        .check(session.run.plan.available(memory::available_bytes()))?;
    observer.observe(&Event::RunStarted(&session.summary()));
    let components = session.components.by_role();
    evaluate(resolved, session, observer, stop).map_err(|error| error.naming(&components))
}

/// The evaluation of a session that fits.
fn evaluate(
    resolved: &ResolvedConfig,
    session: Session,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Evaluation, Error> {
    let config = resolved.config();
    let Session {
        directory,
        components,
        data,
        run,
        others,
        collectives,
        ..
    } = session;
    let RunData {
        train: rows,
        questions,
        ..
    } = data.ok_or_else(|| {
        Error::Usage(UsageError {
            message: "no rows were given".to_owned(),
            next_step: "name their files with --data FILE".to_owned(),
        })
    })?;
    let packed = packed(&run.plan.params);
    let runs = std::iter::once(run).chain(others).collect();
    let (team, _) = weights::load_team(
        config,
        &directory,
        &components,
        runs,
        &collectives,
        observer,
    )?;
    let total = rows.total_steps();
    let begin = Instant::now();
    let outcome = team.evaluate(&rows, config.run.seed, &mut |done| {
        observer.observe(&Event::EvalProgress { done, total });
        Ok(stop.check()?)
    })?;
    let secs = begin.elapsed().as_secs_f64();
    if !outcome.loss.is_finite() {
        return Err(team.evaluation_not_finite(&rows, config.run.seed).into());
    }
    let answered = questions.map(|questions| questions.answer(&team, observer, stop));
    let answered = answered.transpose()?.map(|answered| answered.exact);
    Ok(Evaluation {
        loss: outcome.loss,
        perplexity: outcome.loss.exp(),
        token_accuracy: outcome.token_accuracy,
        sequences: rows.dataset().num_sequences() as u64,
        tokens: outcome.tokens,
        trained_tokens: outcome.trained_tokens,
        counts: rows.dataset().counts(),
        exact_match: answered.map(ExactMatch::share),
        answers: answered.map(|answered| answered.asked),
        packed_bytes: packed.map(|(bytes, _)| bytes),
        bits_per_weight: packed.map(|(bytes, weights)| 8.0 * bytes as f64 / weights as f64),
        secs,
        tokens_per_sec: outcome.tokens as f64 / secs,
    })
}

/// Bytes and elements of all packed params, if any.
pub fn packed(params: &[Param]) -> Option<(u64, u64)> {
    let packed = params.iter().filter_map(|param| match &param.layout {
        WeightLayout::Packed(format) => Some((format.bytes(), param.elements())),
        WeightLayout::Dense(_) => None,
    });
    packed.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}
