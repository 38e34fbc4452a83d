//! A model and rows -> its linears, packed by a quantizer, and their errors on other rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use espalier_compile::splice::weight_of;
use espalier_config::Section;
use espalier_config::{Sources, resolve};
use espalier_engine::calibrate::{Calibrator, SiteToPack};
use espalier_engine::device_graph::GraphKernels;
use espalier_engine::load::{CalibratedWeights, read_weight};
use espalier_engine::observer::Unobserved;
use espalier_interface::Quantizer;
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::format::Format;
use espalier_registry::Chosen;
use espalier_system::files::TensorStore;
use espalier_system::stop::StopFlag;
use espalier_trainer::session::Session;

use super::Seen;

/// A model on the cpu.
pub struct Bench {
    session: Session,
    store: TensorStore,
}

impl Bench {
    /// The model in `directory`.
    pub fn of(directory: &Path) -> Self {
        let sources = Sources::default().set(format!("model.path={directory:?}"));
        let sources = sources
            .set("plugins=[\"lora\"]")
            .set("data.max_seq_len=128");
        let resolved = resolve(&sources).expect("a config");
        let session = Session::open(&resolved, &Unobserved).expect("a session");
        let store = session.directory.tensors().expect("the model's files");
        Bench { session, store }
    }

    fn linears(&self) -> impl Iterator<Item = &Site> {
        let sites = self.session.run.plan.sites.iter();
        sites.filter(|site| site.kind == SiteKind::Linear)
    }

    /// Calibrates all linears on `rows`.
    pub fn calibrate(
        &self,
        quantizer: &Arc<dyn Quantizer>,
        rows: &[Vec<i32>],
    ) -> CalibratedWeights {
        let plan = &self.session.run.plan;
        let chosen = Chosen {
            plugin: Arc::clone(quantizer),
            identity: self.session.components.backend.identity.clone(),
            options: Section::new(),
        };
        let formats = self.linears().map(|site| quantizer.format(site.shape));
        let formats: Vec<Format> = formats.collect::<Result<_, _>>().expect("they fit");
        let sites = self
            .linears()
            .zip(&formats)
            .map(|(site, format)| SiteToPack {
                site: &site.name,
                param: weight_of(&plan.model, site).expect("a weight"),
                format,
                quantizer: &chosen,
                calibration: quantizer
                    .calibration(&site.name, site.shape)
                    .expect("an answer"),
            });
        let calibrator = Calibrator {
            model: &plan.model,
            sites: &sites.collect::<Vec<_>>(),
            rows,
            kernels: &GraphKernels::new(Arc::clone(&self.session.run.device), plan.ops.clone()),
            store: &self.store,
            services: self.session.components.services,
            cache: None,
            observer: &Unobserved,
            stop: &StopFlag::new(),
        };
        let place = tempfile::tempdir().expect("a folder");
        calibrator.run(place.path()).expect("calibrated")
    }

    /// `|X (W - Q)^T|^2` of every eighth output of each linear, packed by `quantizer` after
    /// calibration on `rows`, where `inputs` has the Gram matrices of `X`.
    pub fn errors(
        &self,
        quantizer: &Arc<dyn Quantizer>,
        rows: &[Vec<i32>],
        inputs: &Seen,
    ) -> BTreeMap<String, f64> {
        let packed = self.calibrate(quantizer, rows);
        let errors = self.linears().map(|site| {
            let [n, m] = site.shape;
            let name = format!("{}.weight", site.name);
            let mut weight = vec![0.0; (n * m) as usize];
            read_weight(&self.store, &name, &mut weight).expect("a weight");
            let format = quantizer.format(site.shape).expect("it fits");
            let segments = format.segments.iter();
            let mut memory: Vec<Vec<u8>> =
                segments.map(|one| vec![0; one.bytes() as usize]).collect();
            let mut segments: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
            let filled = packed.fill((&name, &format), &mut segments);
            if filled.expect("read").is_none() {
                let bytes = quantizer.encode_workspace(site.shape).expect("bytes");
                let workspace = &mut vec![0; bytes as usize];
                let done = quantizer.encode(&weight, site.shape, &mut segments, workspace);
                done.expect("packed");
            }
            let segments: Vec<&[u8]> = memory.iter().map(Vec::as_slice).collect();
            let mut decoded = vec![0.0; weight.len()];
            let done = quantizer.decode(&segments, site.shape, 0..n, 0..m, &mut decoded);
            done.expect("decoded");
            let gram = &inputs[&site.name].1[3];
            (
                site.name.clone(),
                error(gram, m as usize, &weight, &decoded),
            )
        });
        errors.collect()
    }
}

fn error(gram: &[f64], cols: usize, weight: &[f32], decoded: &[f32]) -> f64 {
    let rows = weight.chunks(cols).zip(decoded.chunks(cols));
    let of_row = |(weight, decoded): (&[f32], &[f32])| {
        let pairs = weight.iter().zip(decoded);
        let errors: Vec<f64> = pairs.map(|(w, q)| f64::from(*w) - f64::from(*q)).collect();
        let by_channel = gram.chunks(cols).zip(&errors);
        let parts = by_channel.map(|(gram, error)| error * dot(gram, &errors));
        parts.sum::<f64>()
    };
    // Outputs do not depend on each other: some of them will do.
    rows.step_by(8).map(of_row).sum()
}

/// In eight partial sums, which are added at once.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    lanes.iter().sum()
}
