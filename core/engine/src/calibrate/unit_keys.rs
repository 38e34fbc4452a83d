//! All that the statistics of a unit's inputs follow from -> a hash, one unit after the other.
//!
//! They follow from the rows, from what computes them, and from the units before: their graphs,
//! their dense weights and, where layers run packed, how these were packed. What a unit's other
//! sites ask for counts, too: sites that read one value share its sums.

use std::collections::HashMap;

use espalier_config::Section;
use espalier_interface::model::{Model, Unit};
use espalier_interface::{DType, DeviceInfo, Services};
use espalier_registry::PluginIdentity;
use espalier_system::files::{StoredDtype, TensorStore, hash_json};
use serde_json::{Value as Json, json};

use super::SiteToPack;
use crate::Error;
use crate::load::{DenseBytes, WeightCache, stored_name};

/// The version of the hashes' content; another one has other hashes.
const VERSION: u32 = 1;

/// The user's cache, and what computes the statistics of the weights that it holds.
pub struct CalibrationCache<'a> {
    /// The cache.
    pub weights: &'a WeightCache,
    /// The backend that the rows run on.
    pub backend: &'a PluginIdentity,
    /// The backend's options.
    pub backend_options: Option<&'a Section>,
    /// The device that the rows run on.
    pub device: &'a DeviceInfo,
}

/// The hashes of a unit.
pub(super) struct UnitKey {
    statistics: String,
    /// The stored bytes of its weights, by the index of the param.
    dense: HashMap<usize, (StoredDtype, String)>,
}

impl UnitKey {
    /// The hash of what the statistics of a site follow from.
    pub fn of_site(&self, site: &str) -> String {
        hash_json(&(&self.statistics, site))
    }

    /// The stored bytes of the weight `param`.
    pub fn dense(&self, param: usize) -> Option<DenseBytes<'_>> {
        let (dtype, hash) = self.dense.get(&param)?;
        Some(DenseBytes {
            dtype: *dtype,
            hash,
        })
    }
}

/// The hashes of a model's units, in their order.
pub(super) struct UnitKeys<'a> {
    cache: &'a CalibrationCache<'a>,
    services: &'a dyn Services,
    model: &'a Model,
    store: &'a TensorStore,
    /// The hash of all before the next unit.
    before: String,
}

impl<'a> UnitKeys<'a> {
    /// Before the first unit; none where the program cannot be read, whose code decides, too. The
    /// threads of `services` hash.
    pub fn new(
        (cache, services): (&'a CalibrationCache<'a>, &'a dyn Services),
        (model, store): (&'a Model, &'a TensorStore),
        rows: &[Vec<i32>],
        computes_in: DType,
    ) -> Option<Self> {
        let before = beginning(
            cache.weights.program()?,
            (cache.backend, cache.backend_options, cache.device),
            (rows, computes_in),
        );
        Some(UnitKeys {
            cache,
            services,
            model,
            store,
            before,
        })
    }

    /// The hashes of the next unit, whose packed weights are those of `sites`. With `runs_packed`
    /// the units after it get what they make of their inputs.
    ///
    /// # Errors
    /// A weight that is missing or cannot be read.
    pub fn next(
        &mut self,
        unit: &Unit,
        sites: &[&SiteToPack<'_>],
        runs_packed: bool,
    ) -> Result<UnitKey, Error> {
        let mut dense = HashMap::new();
        let mut weights = Vec::with_capacity(unit.params.len());
        for &param in &unit.params {
            let spec = &self.model.params[param];
            let name = stored_name(self.store, &spec.name, &spec.aliases, &spec.shape)?;
            let dtype = self.store.entry(&name)?.dtype;
            let hash = self.store.hash_tensor(&name, self.services)?;
            weights.push(json!([format!("{dtype:?}"), spec.shape, hash]));
            dense.insert(param, (dtype, hash));
        }
        let place = |site: &SiteToPack<'_>| unit.params.iter().position(|one| *one == site.param);
        let graph = &self.model.graphs[unit.graph];
        let ran = hash_json(&(&self.before, graph, weights));
        let wanted = sites
            .iter()
            .map(|site| json!([place(site), site.calibration]));
        let statistics = hash_json(&(&ran, wanted.collect::<Vec<_>>()));
        self.before = if runs_packed {
            let packed = sites.iter().map(|site| self.packed(place(site), site));
            hash_json(&(&statistics, packed.collect::<Vec<_>>()))
        } else {
            ran
        };
        Ok(UnitKey { statistics, dense })
    }

    /// How the weight of a site is packed, which is number `place` of its unit.
    fn packed(&self, place: Option<usize>, site: &SiteToPack<'_>) -> Json {
        let (identity, format) = (&site.quantizer.identity, site.format);
        json!({
            "place": place,
            "site": site.site,
            "quantizer": identity.component,
            "options": site.quantizer.options,
            "format": format,
            "plugin": [identity.plugin, identity.version, identity.abi],
            "code": self.cache.weights.code(identity),
        })
    }
}

/// The hash of all before the first unit: the rows, and what computes.
fn beginning(
    program: &str,
    (backend, options, device): (&PluginIdentity, Option<&Section>, &DeviceInfo),
    (rows, computes_in): (&[Vec<i32>], DType),
) -> String {
    // A host's device describes its threads, of which no bit depends.
    let card = (!device.shares_host_memory).then_some(&device.description);
    hash_json(&json!({
        "version": VERSION,
        "program": program,
        "rows": [hash_json(&rows), hash_json(&rows.len())],
        "longest": rows.iter().map(Vec::len).max(),
        "dtype": computes_in,
        "backend": [backend.component, backend.plugin, backend.version],
        "backend_abi": backend.abi,
        "backend_code": backend.sha256,
        "backend_options": options,
        "instruction_set": device.instruction_set,
        "card": card,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a hash begins with.
    #[derive(Clone)]
    struct Given {
        program: &'static str,
        backend: PluginIdentity,
        options: Option<Section>,
        device: DeviceInfo,
        rows: Vec<Vec<i32>>,
        dtype: DType,
    }

    impl Given {
        fn new() -> Self {
            Given {
                program: "p",
                backend: PluginIdentity {
                    component: "cpu".to_owned(),
                    role: "backend".to_owned(),
                    plugin: "cpu".to_owned(),
                    version: "1.0.0".to_owned(),
                    abi: [0, 10],
                    sha256: None,
                    file: None,
                },
                options: None,
                device: DeviceInfo {
                    name: "cpu".to_owned(),
                    description: "a processor, 2 threads".to_owned(),
                    memory_bytes: 8,
                    free_bytes: 4,
                    instruction_set: "avx2".to_owned(),
                    shares_host_memory: true,
                    exact_memory: true,
                    head_chunk_bytes: None,
                },
                rows: vec![vec![1, 2], vec![3]],
                dtype: DType::F32,
            }
        }

        fn hash(&self) -> String {
            let computes = (&self.backend, self.options.as_ref(), &self.device);
            beginning(self.program, computes, (&self.rows, self.dtype))
        }
    }

    #[test]
    fn what_the_rows_are_and_what_computes_them_decides() {
        let first = Given::new();
        let changes: [fn(&mut Given); 11] = [
            |given| given.program = "another",
            |given| given.backend.component = "tch".to_owned(),
            |given| given.backend.version = "1.0.1".to_owned(),
            |given| given.backend.abi = [0, 11],
            |given| given.backend.sha256 = Some("ab".to_owned()),
            |given| given.options = Some(Section::new()),
            |given| given.device.instruction_set = "avx512".to_owned(),
            |given| given.rows[0][0] = 9,
            |given| given.rows = vec![vec![1], vec![2, 3]],
            |given| given.rows.truncate(1),
            |given| given.dtype = DType::BF16,
        ];
        let mut hashes = vec![first.hash()];
        for change in changes {
            let mut given = first.clone();
            change(&mut given);
            hashes.push(given.hash());
        }
        let count = hashes.len();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn a_card_decides_and_threads_and_free_memory_do_not() {
        let with = |shares_host_memory, description: &str| {
            let mut given = Given::new();
            given.device.shares_host_memory = shares_host_memory;
            given.device.description = description.to_owned();
            given.device.free_bytes = description.len() as u64;
            given.hash()
        };
        assert_eq!(with(true, "2 threads"), with(true, "16 threads"));
        assert_ne!(with(false, "a card"), with(false, "another card"));
    }
}
