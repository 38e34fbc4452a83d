//! A model with its adapter, and the merged model -> how far their logits are apart.
//!
//! Merging holds one weight at a time; this holds a model, one after the other, as evaluation does.
//! Both compute in f32, so that the distance is that of the weights: the rounding to their stored
//! dtype and, with another base than the adapter's own, the error of its quantizer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use espalier_config::ResolvedConfig;
use espalier_data::{MicroBatch, UNTRAINED};
use espalier_engine::executor::{LogitsWindow, StepPosition};
use espalier_engine::observer::Observer;
use espalier_interface::Role;
use espalier_interface::random;
use espalier_numeric::{TokenDivergence, numbers};
use espalier_plan::plan::Purpose;
use espalier_system::failure::UsageError;
use espalier_system::memory;
use espalier_system::stop::StopFlag;
use serde_json::{Value as Json, json};

use crate::session::Session;
use crate::{Error, weights};

/// Sequences of random tokens, and tokens of each at most.
const RANDOM: [u64; 2] = [4, 64];
/// Most bytes of kept logits.
const MOST_BYTES: u64 = 256 << 20;

/// The rows on which logits are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRows {
    /// Sequences of tokens drawn at random from `run.seed`.
    Random,
    /// Those of a file, from its beginning on.
    File(PathBuf),
}

/// How far the logits of a merged model are from those of the model with its adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MergeCheck {
    /// Tokens compared.
    pub tokens: u64,
    /// The largest difference of a logit.
    pub largest: f64,
    /// The mean difference of a logit.
    pub mean: f64,
    /// Mean of `KL(adapter || merged)` over the tokens, in nats.
    pub divergence: f64,
    /// Share of the tokens after which both predict the same one.
    pub same_top: f64,
}

/// A check whose model and rows were opened, before anything is merged.
pub struct PreparedCheck {
    resolved: ResolvedConfig,
    session: Session,
    micro_batches: Vec<MicroBatch>,
}

impl PreparedCheck {
    /// Opens the model with its adapter, and the rows. `resolved` is the config of the merge.
    ///
    /// # Errors
    /// As [`Session::open_for`]; [`Error::OutOfMemory`] for a model that does not fit, and
    /// [`Error::Usage`] for rows without a token.
    pub fn open(
        resolved: &ResolvedConfig,
        rows: &CheckRows,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let mut values = BTreeMap::from([
            ("model.compute", json!("f32")),
            ("data.eval_files", json!([])),
            ("run.ranks", json!(1)),
            ("run.devices", json!([])),
            ("run.eval_answers", Json::Null),
        ]);
        values.extend(match rows {
            CheckRows::Random => vec![
                ("data.files", json!([])),
                ("data.pack_tokens", Json::Null),
                ("data.batch_size", json!(1)),
                ("data.micro_batch", json!(1)),
                ("data.max_seq_len", json!(RANDOM[1])),
            ],
            CheckRows::File(path) => vec![("data.files", json!([path]))],
        });
        let resolved = resolved.with_values("--check", values)?;
        let session = Session::open_for(&resolved, Purpose::Evaluate, observer, stop)?;
        check_memory(&session)?;
        let row_bytes = 4 * session.run.plan.model.vocab_size;
        let most = (MOST_BYTES / row_bytes.max(1)).max(1);
        let micro_batches = match &session.data {
            None => random_rows(&session, resolved.config().run.seed),
            Some(data) => {
                let mut found: Vec<MicroBatch> = Vec::new();
                for index in 0..data.train.total_steps() {
                    found.extend(data.train.step(index)?.micro_batches.iter().cloned());
                    if found
                        .iter()
                        .map(|micro| micro.tokens.len() as u64)
                        .sum::<u64>()
                        >= most
                    {
                        break;
                    }
                }
                found
            }
        };
        if micro_batches.iter().all(|micro| micro.tokens.is_empty()) {
            return Err(Error::Usage(UsageError {
                message: "--check: the rows have no token".to_owned(),
                next_step: "name a file with rows, or leave its name out".to_owned(),
            }));
        }
        Ok(PreparedCheck {
            resolved,
            session,
            micro_batches,
        })
    }

    /// Compares the model in `merged` with the one that was opened.
    ///
    /// # Errors
    /// As [`Session::open_for`] for the merged model; errors of loading and computing.
    pub fn measure(
        self,
        merged: &Path,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<MergeCheck, Error> {
        let PreparedCheck {
            resolved,
            session,
            micro_batches,
        } = self;
        let by_role = session.components.by_role();
        let in_weights = |name: &String| {
            let mut roles = by_role.iter();
            roles.any(|(role, identity)| {
                [Role::ADAPTER, Role::QUANTIZER].contains(role) && identity.component == *name
            })
        };
        let mut plugins = resolved.config().plugins.clone();
        plugins.retain(|name| !in_weights(name));
        let values = BTreeMap::from([
            ("model.path", json!(merged)),
            ("model.adapter", Json::Null),
            ("plugins", json!(plugins)),
            ("sites", json!([])),
        ]);
        let of_merged = resolved.with_values("--check", values)?;
        let mut kept = Vec::new();
        logits(
            &resolved,
            session,
            &micro_batches,
            observer,
            stop,
            &mut |row| {
                kept.push(row.iter().map(|&x| x as f32).collect::<Vec<f32>>());
                4 * (kept.len() * row.len()) as u64 <= MOST_BYTES
            },
        )?;
        let session = Session::open_for(&of_merged, Purpose::Evaluate, observer, stop)?;
        check_memory(&session)?;
        let mut sums = MergeCheck::default();
        let mut logits_seen = 0;
        logits(
            &of_merged,
            session,
            &micro_batches,
            observer,
            stop,
            &mut |row| {
                let before = kept[sums.tokens as usize].iter().map(|&x| f64::from(x));
                let before: Vec<f64> = before.collect();
                for (a, b) in before.iter().zip(row) {
                    sums.largest = sums.largest.max((a - b).abs());
                    sums.mean += (a - b).abs();
                }
                logits_seen += row.len();
                let apart = TokenDivergence::of(&before, row);
                sums.divergence += apart.divergence;
                sums.same_top += f64::from(u8::from(apart.same_top));
                sums.tokens += 1;
                (sums.tokens as usize) < kept.len()
            },
        )?;
        let tokens = sums.tokens as f64;
        Ok(MergeCheck {
            mean: sums.mean / logits_seen as f64,
            divergence: sums.divergence / tokens,
            same_top: sums.same_top / tokens,
            ..sums
        })
    }
}

/// Passes the logits of each token, `[V]`, to `take` until that returns false.
fn logits(
    resolved: &ResolvedConfig,
    session: Session,
    micro_batches: &[MicroBatch],
    observer: &dyn Observer,
    stop: &StopFlag,
    take: &mut dyn FnMut(&[f64]) -> bool,
) -> Result<(), Error> {
    let Session {
        directory,
        components,
        run,
        ..
    } = session;
    let by_role = components.by_role();
    let config = resolved.config();
    let loaded = weights::load(config, &directory, &components, run, observer);
    let (executor, _) = loaded.map_err(|error| error.naming(&by_role))?;
    let mut goes_on = true;
    for micro in micro_batches {
        stop.check()?;
        let position = StepPosition {
            seed: config.run.seed,
            step: 0,
            first: true,
            last: true,
        };
        let mut read = |window: &LogitsWindow<'_>| {
            let mut bytes = vec![0; window.row_bytes()? as usize];
            for token in window.tokens() {
                if !goes_on {
                    break;
                }
                window.read(token..token + 1, &mut bytes)?;
                goes_on = take(&numbers(&bytes, window.dtype()));
            }
            Ok(())
        };
        let evaluated = executor.evaluate(micro, position, Some(&mut read));
        evaluated.map_err(|error| Error::from(error).naming(&by_role))?;
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Sequences of random tokens of the session's model.
fn random_rows(session: &Session, seed: u64) -> Vec<MicroBatch> {
    let model = &session.run.plan.model;
    let length = RANDOM[1].min(model.max_positions);
    let key = random::key(seed, random::Purpose::SYNTHETIC, 0);
    let sequence = |number: u64| {
        let token = |index: u64| {
            let words = random::philox(key, [index as u32, number as u32, 0, 0]);
            (u64::from(words[0]) % model.vocab_size) as i32
        };
        MicroBatch {
            tokens: (0..length).map(token).collect(),
            positions: (0..length as i32).collect(),
            cu_seqlens: vec![0, length as i32],
            labels: vec![UNTRAINED; length as usize],
            sequences: vec![0],
            lengths: Vec::new(),
            num_trained: 0,
        }
    };
    (0..RANDOM[0]).map(sequence).collect()
}

/// Refuses a model that the memory at hand does not hold.
fn check_memory(session: &Session) -> Result<(), Error> {
    let plan = &session.run.plan;
    Ok(plan.check(plan.available(memory::available_bytes()))?)
}
