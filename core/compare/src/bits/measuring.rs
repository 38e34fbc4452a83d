//! A dense model, its rows and a table -> the table with every option measured on every site.

use std::collections::HashMap;
use std::path::Path;

use espalier_compile::params::Param;
use espalier_engine::encoded::{decode_all, pack};
use espalier_engine::load::{Scratch, read_weight, stored_name};
use espalier_engine::observer::{Event, Observer, Unobserved};
use espalier_interface::format::Format;
use espalier_interface::{Quantizer, Services};
use espalier_numeric::ErrorSums;
use espalier_registry::{Chosen, answer};
use espalier_system::files::TensorStore;
use espalier_trainer::Error as TrainerError;
use espalier_trainer::train::LoadedBase;

use super::table::{BitTable, Measured};
use crate::Error;
use crate::base;
use crate::dense_baseline::DenseBaseline;
use crate::record::Divergence;

/// An option of a site that is to be measured.
pub(super) struct Trial<'a> {
    /// Index of the site's weight among the run's params.
    pub param: usize,
    /// The site's name.
    pub site: String,
    /// The option's name.
    pub option: &'a str,
    /// Its quantizer.
    pub quantizer: &'a Chosen<dyn Quantizer>,
    /// How it packs this weight.
    pub format: Format,
    /// Bytes of the packed weight in memory.
    pub bytes: u64,
}

impl Trial<'_> {
    /// Host memory of the trial: the weight dense and decoded as f32, its own bytes of the device,
    /// packed, and the encoder's workspace.
    ///
    /// # Errors
    /// The quantizer's failure.
    pub fn memory(&self, params: &[Param]) -> Result<u64, Error> {
        let param = &params[self.param];
        let workspace = answer::encode_workspace(self.quantizer, self.format.shape)?;
        Ok(8 * param.elements() + param.bytes() + self.bytes + workspace)
    }
}

/// Memory of a weight in its forms.
#[derive(Default)]
struct Memory {
    dense: Scratch,
    decoded: Scratch,
    workspace: Scratch,
}

/// Makes the `trials`, which are ordered by site, and writes the table to `path` after each.
///
/// # Errors
/// Failures of a quantizer or of the backend; a weight that cannot be read; a signal; a full disk.
/// The table then holds what was measured.
pub(super) fn measure(
    subject: &LoadedBase<'_>,
    store: &TensorStore,
    trials: &[Trial<'_>],
    dense_baseline: &DenseBaseline,
    table: &mut BitTable,
    path: &Path,
) -> Result<(), Error> {
    let executor = subject.team.first();
    let mut memory = Memory::default();
    let mut done = 0;
    for of_site in trials.chunk_by(|one, next| one.param == next.param) {
        let param = &executor.params()[of_site[0].param];
        let dense = memory.dense.floats(param.elements() as usize)?;
        let name = stored_name(store, &param.name, &param.aliases, &param.shape)?;
        read_weight(store, &name, dense)?;
        let own = executor.dense_bytes(of_site[0].param)?;
        for trial in of_site {
            subject.stop.check()?;
            let decoded = memory.decoded.floats(dense.len())?;
            let workspace = &mut memory.workspace;
            let of = (trial, param.name.as_str());
            pack_and_decode(subject.services, of, dense, decoded, workspace)?;
            let sums = ErrorSums::of(dense, decoded);
            executor.replace_dense(trial.param, decoded)?;
            let divergence = diverging(subject, dense_baseline)?;
            table.measured.push(measured(trial, sums, divergence));
            table.write(path)?;
            done += 1;
            subject.observer.observe(&Event::OptionMeasured {
                site: &trial.site,
                option: trial.option,
                done,
                total: trials.len() as u64,
            });
        }
        executor.restore_dense(of_site[0].param, &own)?;
    }
    Ok(())
}

/// Packs `dense`, the weight `param`, and decodes it into `decoded`.
fn pack_and_decode(
    services: &dyn Services,
    (trial, param): (&Trial<'_>, &str),
    dense: &[f32],
    decoded: &mut [f32],
    workspace: &mut Scratch,
) -> Result<(), Error> {
    let (quantizer, format) = (trial.quantizer, &trial.format);
    let segments = format.segments.iter();
    let mut segments: Vec<Vec<u8>> = segments
        .map(|segment| vec![0; segment.bytes() as usize])
        .collect();
    let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    let bytes = answer::encode_workspace(quantizer, format.shape)?;
    let workspace = workspace.bytes(bytes as usize)?;
    pack(quantizer, param, format, dense, &mut parts, workspace)?;
    let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let of = (quantizer, param, format);
    Ok(decode_all(services, of, &parts, decoded)?)
}

/// The divergence with a changed weight; `None` where it is not finite.
fn diverging(
    subject: &LoadedBase<'_>,
    dense_baseline: &DenseBaseline,
) -> Result<Option<Divergence>, Error> {
    let quiet = LoadedBase {
        observer: &Unobserved as &dyn Observer,
        ..*subject
    };
    match base::diverging(&quiet, dense_baseline) {
        Ok((divergence, _)) => Ok(divergence),
        Err(TrainerError::NotFinite(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn measured(trial: &Trial<'_>, sums: ErrorSums, divergence: Option<Divergence>) -> Measured {
    let weight_error = if sums.squared_error == 0.0 {
        0.0
    } else {
        sums.squared_error / sums.squared_norm
    };
    Measured {
        site: trial.site.clone(),
        option: trial.option.to_owned(),
        bytes: Some(trial.bytes),
        weight_error,
        divergence: divergence.as_ref().map(|found| found.mean),
        divergence_error: divergence.as_ref().and_then(standard_error),
    }
}

/// The standard error of a mean over tokens that are drawn by document, a ratio of two sums:
/// `sqrt(n / (n - 1) sum (s_i - m t_i)^2) / sum t_i` for documents of `t_i` tokens with sums `s_i`.
///
/// # Source
/// Cochran: Sampling Techniques (1977), section 6.3.
fn standard_error(divergence: &Divergence) -> Option<f64> {
    let documents = divergence.documents.iter();
    let documents: Vec<_> = documents.filter(|document| document.tokens > 0).collect();
    let count = documents.len() as f64;
    if count < 2.0 {
        return None;
    }
    let apart = documents.iter().map(|document| {
        let expected = divergence.mean * document.tokens as f64;
        (document.sum - expected).powi(2)
    });
    let variance = apart.sum::<f64>() * count / (count - 1.0);
    Some(variance.sqrt() / divergence.tokens as f64)
}

/// Params by name.
pub(super) fn params_by_name(params: &[Param]) -> HashMap<&str, usize> {
    let params = params.iter().enumerate();
    params
        .filter(|(_, param)| param.kind.is_some())
        .map(|(index, param)| (param.name.as_str(), index))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DocumentDivergence;

    #[test]
    fn the_standard_error_is_that_of_a_mean_where_documents_are_equally_long() {
        let of = |sums: &[f64]| {
            let documents = sums
                .iter()
                .map(|&sum| DocumentDivergence { sum, tokens: 2 });
            let tokens = 2 * sums.len() as u64;
            standard_error(&Divergence {
                tokens,
                mean: sums.iter().sum::<f64>() / tokens as f64,
                documents: documents.collect(),
                ..Divergence::default()
            })
        };
        // Means 1, 2 and 6 of documents: mean 3, variance 7, over 3 documents.
        let found = of(&[2.0, 4.0, 12.0]).expect("three documents");
        assert!((found - (7.0f64 / 3.0).sqrt()).abs() < 1e-12, "{found}");
        assert_eq!(of(&[2.0]), None);
    }
}
