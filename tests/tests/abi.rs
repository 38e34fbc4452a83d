//! Plugins built against other versions of the interface: older ones load, newer ones are refused
//! with a reason.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_interface::abi::{ABI_MAJOR, ABI_MINOR, ABI_OLDEST_MINOR};
use espalier_interface::{Quantizer, Serial, Services};
use espalier_registry::{PluginIdentity, Registry, SearchPath};
use espalier_samples::{Patch, library, library_against, library_against_kept, put};
use espalier_system::failure::Failure;
use espalier_tests::{Golden, Rig, golden_path, micro_batch, step_of};
use serde_json::Map;
use tempfile::TempDir;

static SERVICES: &dyn Services = &Serial;

/// A folder with a library that no other user can write.
fn folder(library: &Path) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let to = dir.path().join("liblinear4.so");
    put(&to, &fs::read(library).expect("just built"));
    dir
}

fn registry(dir: &TempDir) -> Registry {
    let dirs = [("--plugin-dir", dir.path().to_owned())];
    Registry::discover(&SearchPath::new(dirs).without_linked())
}

fn quantizer(dir: &TempDir) -> (Box<dyn Quantizer>, PluginIdentity) {
    let made = registry(dir).create_quantizer("linear4", &Map::new(), SERVICES);
    made.expect("it loads")
}

/// The segments that a quantizer encodes from a weight, and the values that it decodes from them.
fn packed(quantizer: &dyn Quantizer) -> (Vec<Vec<u8>>, Vec<f32>) {
    let shape = [6, 96];
    let weight: Vec<f32> = (0..6 * 96)
        .map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0)
        .collect();
    let format = quantizer.format(shape).expect("a shape that fits");
    let sizes = format
        .segments
        .iter()
        .map(|segment| segment.bytes() as usize);
    let mut segments: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
    let mut views: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    quantizer
        .encode(&weight, shape, &mut views, &mut [])
        .expect("finite");
    let views: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let mut decoded = vec![0.0; 2 * 96];
    quantizer
        .decode(&views, shape, 3..5, 0..96, &mut decoded)
        .expect("its own bytes");
    (segments, decoded)
}

/// Versions with kept sources.
fn kept() -> Vec<[u32; 2]> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/abi");
    let entries = fs::read_dir(golden).expect("kept sources");
    let version = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let version = name.strip_prefix("interface-")?.strip_suffix(".tar.gz")?;
        let (major, minor) = version.split_once('.')?;
        Some([major.parse().ok()?, minor.parse().ok()?])
    };
    let mut versions: Vec<_> = entries
        .filter_map(|entry| version(entry.expect("an entry").path()))
        .collect();
    versions.sort();
    versions
}

#[test]
fn plugins_of_every_older_interface_load() {
    let older: Vec<_> = (ABI_OLDEST_MINOR..ABI_MINOR)
        .map(|minor| [ABI_MAJOR, minor])
        .collect();
    let kept: Vec<_> = kept()
        .into_iter()
        .filter(|version| version[1] < ABI_MINOR)
        .collect();
    assert_eq!(
        kept, older,
        "each version that loads has its sources in tests/golden/abi"
    );
    let dir = folder(&library("linear4"));
    let (current, _) = quantizer(&dir);
    let expected = packed(current.as_ref());
    for version @ [major, minor] in older {
        let dir = folder(&library_against_kept(
            "linear4",
            &format!("{major}.{minor}"),
        ));
        let (old, identity) = quantizer(&dir);
        assert_eq!(identity.abi, version);
        assert_eq!(packed(old.as_ref()), expected, "{major}.{minor}");
    }
}

/// The loss, logits and gradients of the tiny Llama with the adapter `scaled` in a library.
fn adapted(library: &Path, version: [u32; 2]) -> (f64, Vec<f64>, Vec<Vec<f64>>) {
    let dir = tempfile::tempdir().expect("a folder");
    put(
        &dir.path().join("libscaled.so"),
        &fs::read(library).expect("just built"),
    );
    let dirs = format!("[{:?}]", dir.path());
    let keys = [
        ("run.plugin_dirs", dirs.as_str()),
        ("plugins", "[\"scaled\"]"),
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "4"),
    ];
    let rig = Rig::new(&golden_path("llama/tiny-trained"), &keys);
    let adapter = rig.components.adapter.as_ref().expect("an adapter");
    assert_eq!(adapter.identity.abi, version);
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    let batch = micro_batch(&rows, &rows);
    let loss = rig.loss_and_gradients(&step_of(vec![batch.clone()]));
    let params = rig.executor.params().iter();
    let trained = params.filter(|param| param.trainable);
    let gradients: Vec<_> = trained.map(|param| rig.gradient(&param.name)).collect();
    assert!(!gradients.is_empty());
    (loss, rig.logits(&batch), gradients)
}

#[test]
fn an_adapter_of_interface_0_4_computes_the_same_bits() {
    let old = adapted(&library_against_kept("scaled", "0.4"), [0, 4]);
    let current = adapted(&library("scaled"), [ABI_MAJOR, ABI_MINOR]);
    assert_eq!(old, current);
}

#[test]
fn a_plugin_of_a_newer_interface_is_refused_with_a_reason() {
    let next = ABI_MINOR + 1;
    let newer = Patch {
        file: "core/interface/src/abi/root.rs",
        from: &format!("ABI_MINOR: u32 = {ABI_MINOR};"),
        to: &format!("ABI_MINOR: u32 = {next};"),
    };
    let dir = folder(&library_against("linear4", "newer", &[newer]));
    let error = registry(&dir)
        .create_quantizer("linear4", &Map::new(), SERVICES)
        .err()
        .expect("a newer interface");
    assert_eq!(error.exit_code(), 5);
    let built = format!(
        "built for plugin interface {ABI_MAJOR}.{next}, this host has {ABI_MAJOR}.{ABI_MINOR}"
    );
    let message = error.to_string();
    assert!(
        message.contains(&built) && message.contains("liblinear4.so"),
        "{message}"
    );
    assert!(
        error.next_step().contains("update this host"),
        "{}",
        error.next_step()
    );
}
