//! A component and its options -> calls of its methods on small synthetic data, as a run would make
//! them.

use std::io;

use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::schedule::{ShardingRequest, UnitBytes};
use espalier_interface::{
    Backend, BufferRange, ErrorCode, MemoryKind, PluginError, Quantizer, Role, Services, Stream,
};
use espalier_system::threads::HostServices;
use serde_json::json;

use super::{Answer, Answered, tried};
use crate::probe::report::{Trial, Tried};
use crate::registry::{PluginIdentity, Registry, RegistryError};

/// The shape of the packed weight: enough for several blocks and several threads.
const SHAPE: [u64; 2] = [32, 128];

/// Most bytes of a packed [`SHAPE`] and its workspace.
const BYTES: u64 = 64 << 20;

/// A component under trial, and its output.
struct Exercise<'a> {
    name: &'a str,
    answer: &'a mut Answer,
    identity: PluginIdentity,
    /// A failure to write the output, which ends the process.
    unsaid: io::Result<()>,
}

/// Makes the component of `trial` and calls it.
pub(super) fn run(
    registry: &Registry,
    trial: &Trial,
    answer: &mut Answer,
) -> io::Result<Answered<Tried>> {
    let name = trial.component.as_str();
    answer.doing("create", Some(name))?;
    let services = HostServices::start(Some(2)).map_err(io::Error::other)?;
    let mut unsaid = Ok(());
    let done = call(registry, trial, services, answer, &mut unsaid);
    unsaid?;
    answer.doing("destroy", Some(name))?;
    Ok(tried(name, done))
}

fn call(
    registry: &Registry,
    trial: &Trial,
    services: &'static dyn Services,
    answer: &mut Answer,
    unsaid: &mut io::Result<()>,
) -> Result<(), RegistryError> {
    let (name, options) = (trial.component.as_str(), &trial.options);
    let mut calls =
        |identity, exercise: &dyn Fn(&mut Exercise<'_>) -> Result<(), RegistryError>| {
            let mut with = Exercise {
                name,
                answer: &mut *answer,
                identity,
                unsaid: Ok(()),
            };
            let done = exercise(&mut with);
            *unsaid = with.unsaid;
            done
        };
    match Role::from_name(&trial.role) {
        Some(Role::QUANTIZER) => {
            let (made, identity) = registry.create_quantizer(name, options, services)?;
            calls(identity, &|exercise| exercise.quantizer(made.as_ref()))
        }
        Some(Role::ADAPTER) => {
            let (made, identity) = registry.create_adapter(name, options, services)?;
            calls(identity, &|exercise| {
                exercise.call("adapt", || made.adapt(&sites()).map(drop))
            })
        }
        Some(Role::SHARDING) => {
            let (made, identity) = registry.create_sharding(name, options, services)?;
            let schedule = || made.schedule(&request())?.validate(&request());
            calls(identity, &|exercise| exercise.call("schedule", schedule))
        }
        Some(Role::FAMILY) => {
            let (made, identity) = registry.create_family(name, options, services)?;
            let describe = || made.describe(&json!({})).map(drop);
            calls(identity, &|exercise| exercise.call("describe", describe))
        }
        Some(Role::BACKEND) => {
            let (made, identity) = registry.create_backend(name, options, services)?;
            calls(identity, &|exercise| exercise.backend(made.as_ref()))
        }
        Some(Role::COLLECTIVE) => {
            let (made, identity) = registry.create_collective(name, options, services)?;
            let describe = || made.describe().map(drop);
            calls(identity, &|exercise| exercise.call("describe", describe))
        }
        _ => Ok(()),
    }
}

impl Exercise<'_> {
    /// Makes one call. A refusal of synthetic data is no fault.
    fn call(
        &mut self,
        callback: &'static str,
        call: impl FnOnce() -> Result<(), PluginError>,
    ) -> Result<(), RegistryError> {
        let said = self.answer.doing(callback, Some(self.name));
        if said.is_err() {
            self.unsaid = said;
            return Ok(());
        }
        match call() {
            Err(error) if !matches!(error.code, ErrorCode::INVALID | ErrorCode::UNSUPPORTED) => {
                Err(self.identity.failed(callback, error))
            }
            _ => Ok(()),
        }
    }

    fn quantizer(&mut self, quantizer: &dyn Quantizer) -> Result<(), RegistryError> {
        let mut format = None;
        self.call("format", || {
            let found = quantizer.format(SHAPE)?;
            found.validate().map_err(lie)?;
            format = Some(found);
            Ok(())
        })?;
        // It refuses the shape.
        let Some(format) = format else { return Ok(()) };
        let mut workspace_bytes = 0;
        self.call("encode_workspace", || {
            workspace_bytes = quantizer.encode_workspace(SHAPE)?;
            Ok(())
        })?;
        let sizes = format.segments.iter().map(|segment| segment.bytes());
        let packed_bytes = sizes.clone().fold(workspace_bytes, u64::saturating_add);
        if packed_bytes > BYTES {
            let words = format!("{packed_bytes} bytes for a weight of {SHAPE:?}");
            let error = PluginError::new(ErrorCode::PROTOCOL, words);
            return Err(self.identity.failed("format", error));
        }
        let mut segments: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes as usize]).collect();
        let mut workspace = vec![0; workspace_bytes as usize];
        let elements = SHAPE[0] * SHAPE[1];
        let weight: Vec<f32> = (0..elements)
            .map(|at| ((at * 37) % 101) as f32 / 50.0 - 1.0)
            .collect();
        self.call("encode", || {
            let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
            refused(quantizer.encode(&weight, SHAPE, &mut views, &mut workspace))
        })?;
        let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        let mut decoded = vec![f32::NAN; weight.len()];
        self.call("decode", || {
            let (rows, cols) = (0..SHAPE[0], 0..SHAPE[1]);
            refused(quantizer.decode(&views, SHAPE, rows, cols, &mut decoded))?;
            match decoded.iter().position(|x| !x.is_finite()) {
                None => Ok(()),
                Some(at) => Err(PluginError::new(
                    ErrorCode::PROTOCOL,
                    format!(
                        "element {at} of a finite weight {SHAPE:?} comes back as {}",
                        decoded[at]
                    ),
                )),
            }
        })
    }

    fn backend(&mut self, backend: &dyn Backend) -> Result<(), RegistryError> {
        let mut count = 0;
        self.call("devices", || {
            count = backend.devices()?.len();
            Ok(())
        })?;
        if count == 0 {
            return Ok(());
        }
        let bytes: Vec<u8> = (0..=255).collect();
        let mut back = vec![0; bytes.len()];
        self.call("open", || {
            let device = backend.open(0)?;
            let buffer = device.alloc(bytes.len() as u64, MemoryKind::DEVICE)?;
            let range = BufferRange {
                buffer,
                offset: 0,
                bytes: bytes.len() as u64,
            };
            device.upload(&bytes, range, Stream(0))?;
            device.download(range, &mut back, Stream(0))?;
            device.free(buffer)
        })?;
        self.call("download", || {
            if back == bytes {
                Ok(())
            } else {
                Err(PluginError::new(
                    ErrorCode::PROTOCOL,
                    "256 bytes do not come back as they were uploaded",
                ))
            }
        })
    }
}

/// An inconsistent format is not a refusal of the shape.
fn lie(error: PluginError) -> PluginError {
    PluginError::new(ErrorCode::PROTOCOL, error.message)
}

/// A shape with a format has to be packed and unpacked.
fn refused(done: Result<(), PluginError>) -> Result<(), PluginError> {
    done.map_err(|error| match error.code {
        ErrorCode::INVALID | ErrorCode::UNSUPPORTED => lie(error),
        _ => error,
    })
}

/// The sites of a layer and a head.
fn sites() -> Vec<Site> {
    let site = |name: &str, kind, shape| Site {
        name: name.to_owned(),
        kind,
        shape,
        tied_to: None,
        has_bias: false,
    };
    let in_layer = |name: &str| format!("model.layers.0.{name}");
    vec![
        site("model.embed_tokens", SiteKind::Embedding, [256, 64]),
        site(&in_layer("self_attn.q_proj"), SiteKind::Linear, [64, 64]),
        site(&in_layer("self_attn.k_proj"), SiteKind::Linear, [32, 64]),
        site(&in_layer("self_attn.v_proj"), SiteKind::Linear, [32, 64]),
        site(&in_layer("self_attn.o_proj"), SiteKind::Linear, [64, 64]),
        site(&in_layer("mlp.gate_proj"), SiteKind::Linear, [128, 64]),
        site(&in_layer("mlp.up_proj"), SiteKind::Linear, [128, 64]),
        site(&in_layer("mlp.down_proj"), SiteKind::Linear, [64, 128]),
        site("lm_head", SiteKind::Head, [256, 64]),
    ]
}

/// One rank and three units.
fn request() -> ShardingRequest {
    let unit = |name: &str, trainable| UnitBytes {
        name: name.to_owned(),
        frozen: 4096,
        trainable,
        gradients: trainable,
        optimizer: 2 * trainable,
        ..UnitBytes::default()
    };
    ShardingRequest {
        units: vec![unit("embedding", 0), unit("layer", 256), unit("head", 0)],
        world: 1,
        ranks_per_machine: 1,
        ..ShardingRequest::default()
    }
}
