//! A site's weight and the statistics of its inputs -> its segments, which are kept.

use std::time::Instant;

use espalier_interface::model::ParamSpec;
use espalier_registry::answer;
use espalier_system::files::TensorStore;

use super::SiteToPack;
use super::gathered::Gathered;
use crate::Error;
use crate::encoded::{InputStatistics, check_decoded, pack, pack_calibrated};
use crate::load::{CalibratedWeights, Scratch, read_weight, stored_name};

/// Memory for one weight, and where its segments go.
pub struct SiteEncoder<'a> {
    store: &'a TensorStore,
    packed: &'a CalibratedWeights,
    scratch: Scratch,
    workspace: Scratch,
}

impl<'a> SiteEncoder<'a> {
    /// Takes weights from `store`, and keeps their segments in `packed`.
    pub fn new(store: &'a TensorStore, packed: &'a CalibratedWeights) -> Self {
        SiteEncoder {
            store,
            packed,
            scratch: Scratch::default(),
            workspace: Scratch::default(),
        }
    }

    /// Encodes the weight `spec` of a site.
    ///
    /// # Errors
    /// A weight that cannot be read; errors of the quantizer; a full disk.
    pub fn encode(
        &mut self,
        site: &SiteToPack<'_>,
        spec: &ParamSpec,
        gathered: &Gathered<'_>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let (format, quantizer) = (site.format, site.quantizer);
        let weight = self.scratch.floats(spec.elements() as usize)?;
        let name = stored_name(self.store, &spec.name, &spec.aliases, &spec.shape)?;
        read_weight(self.store, &name, weight)?;
        let segments = format.segments.iter();
        let mut segments: Vec<Vec<u8>> =
            segments.map(|one| vec![0; one.bytes() as usize]).collect();
        let mut parts: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
        let nanos = match &site.calibration {
            None => {
                let bytes = answer::encode_workspace(quantizer, format.shape)?;
                let workspace = self.workspace.bytes(bytes as usize)?;
                let begin = Instant::now();
                pack(quantizer, &spec.name, format, weight, &mut parts, workspace)?;
                begin.elapsed().as_nanos() as u64
            }
            Some(calibration) => {
                let bytes = answer::calibrated_workspace(quantizer, format.shape)?;
                let workspace = self.workspace.bytes(bytes as usize)?;
                let statistics = InputStatistics {
                    site: site.site,
                    tokens: gathered.tokens,
                    values: &gathered.of(site.param, &calibration.statistics),
                };
                let packing = (quantizer, spec.name.as_str(), format);
                let begin = Instant::now();
                pack_calibrated(packing, weight, &statistics, &mut parts, workspace)?;
                begin.elapsed().as_nanos() as u64
            }
        };
        let parts: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        check_decoded(quantizer, &spec.name, format, weight, &parts)?;
        self.packed.put((&spec.name, format), &parts, nanos)?;
        Ok(segments)
    }
}
