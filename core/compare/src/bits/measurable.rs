//! A dense session and the options -> what can be measured of it.

use espalier_compile::params::Param;
use espalier_compile::splice::weight_of;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::format::Format;
use espalier_interface::{ErrorCode, WeightLayout};
use espalier_registry::{Error as RegistryError, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::{ModelDirectory, hash_json};
use espalier_trainer::session::Session;

use super::measuring::{Trial, params_by_name};
use super::options::BitOption;
use super::table::{BitTable, SiteRecord, Subject};
use crate::{ArmFailure, Error};

/// Everything that can be measured of a session.
pub(super) struct Measurable<'o> {
    /// Shape of the first site's weight; `None` where no site has a choice.
    pub first_shape: Option<[u64; 2]>,
    /// The table, without measurements.
    pub table: BitTable,
    /// Ordered by site.
    pub trials: Vec<Trial<'o>>,
    /// Sites with an option that cannot pack them.
    pub impossible: Vec<(String, String)>,
}

impl<'o> Measurable<'o> {
    /// What of `session`, a dense one, each of `options` can pack.
    ///
    /// # Errors
    /// An option that can pack no weight; a quantizer's failure; rows without a trained token.
    pub fn of(session: &Session, options: &'o [BitOption]) -> Result<Self, Error> {
        let plan = &session.run.plan;
        let by_name = params_by_name(&plan.params);
        let weight = |site: &Site| {
            let spec = &plan.model.params[weight_of(&plan.model, site)?];
            by_name.get(spec.name.as_str()).copied()
        };
        let mut found = Measurable {
            first_shape: None,
            table: BitTable {
                subject: subject(session)?,
                options: options.iter().map(|option| option.record.clone()).collect(),
                other_bytes: plan.params.iter().map(Param::bytes).sum(),
                ..BitTable::default()
            },
            trials: Vec::new(),
            impossible: Vec::new(),
        };
        let mut refusals: Vec<Option<RegistryError>> = options.iter().map(|_| None).collect();
        for site in &plan.sites {
            let choosable = site.kind != SiteKind::Embedding && site.tied_to.is_none();
            let Some(param) = weight(site).filter(|_| choosable) else {
                found.table.other_sites.push(site.name.clone());
                continue;
            };
            found.first_shape = found.first_shape.or(Some(site.shape));
            let dense = &plan.params[param];
            found.table.other_bytes -= dense.bytes();
            found.table.sites.push(SiteRecord {
                name: site.name.clone(),
                elements: dense.elements(),
                dense_bytes: dense.bytes(),
                by_default: site.kind == SiteKind::Linear,
            });
            for (option, refusal) in options.iter().zip(&mut refusals) {
                let Some(quantizer) = &option.quantizer else {
                    continue;
                };
                match answer::format(quantizer, site.shape) {
                    Ok(format) => found.trials.push(Trial {
                        param,
                        site: site.name.clone(),
                        option: &option.record.name,
                        quantizer,
                        bytes: packed_bytes(dense, &format),
                        format,
                    }),
                    Err(error) if is_refusal(&error) => {
                        *refusal = Some(error);
                        let pair = (site.name.clone(), option.record.name.clone());
                        found.impossible.push(pair);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        for (option, refusal) in options.iter().zip(refusals) {
            let name = &option.record.name;
            let used = found.trials.iter().any(|trial| trial.option == name);
            if let (false, Some(refusal)) = (used, refusal) {
                return Err(ArmFailure::of(name, refusal).into());
            }
        }
        Ok(found)
    }
}

/// Bytes in memory of `dense`, packed.
fn packed_bytes(dense: &Param, format: &Format) -> u64 {
    let packed = Param {
        layout: WeightLayout::Packed(Box::new(format.clone())),
        ..dense.clone()
    };
    packed.bytes()
}

/// Whether a quantizer says that its options do not fit a weight.
fn is_refusal(error: &RegistryError) -> bool {
    matches!(error, RegistryError::Plugin(failure) if failure.source.code == ErrorCode::INVALID)
}

/// What a session measures on.
fn subject(session: &Session) -> Result<Subject, Error> {
    let data = session.data.as_ref().expect("the rows were read before");
    let rows = &data.train;
    let (mut batches, mut tokens, mut compared) = (Vec::new(), 0, 0);
    for index in 0..rows.total_steps() {
        let step = rows.step(index).map_err(espalier_trainer::Error::from)?;
        compared += step.trained_tokens as u64;
        for micro in step.micro_batches {
            tokens += micro.tokens.len() as u64;
            batches.push((micro.tokens, micro.labels, micro.cu_seqlens));
        }
    }
    if compared == 0 {
        return Err(Error::Usage(UsageError {
            message: "no token of the rows is trained, so no prediction can be compared".to_owned(),
            next_step: "give other rows with --data, or more with --tokens".to_owned(),
        }));
    }
    let directory: &ModelDirectory = &session.directory;
    let backend = &session.components.backend.identity;
    let hash = backend.sha256.clone().unwrap_or_default();
    Ok(Subject {
        espalier: env!("CARGO_PKG_VERSION").to_owned(),
        model: directory.hashes(Some(&directory.tensors()?))?,
        rows_sha256: hash_json(&batches),
        documents: rows.dataset().num_sequences() as u64,
        tokens,
        compared_tokens: compared,
        compute: session.run.plan.dtypes.compute.to_string(),
        backend: format!("{} {} {hash}", backend.component, backend.version)
            .trim_end()
            .to_owned(),
    })
}
