//! `host merge` against PEFT's `merge_and_unload`, and with adapters other than LoRA.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_interface::adaptation::{Adaptation, AdapterParam, Join, Site, SiteKind};
use espalier_interface::graph::{Attributes, Dim, Graph, Source};
use espalier_interface::{
    Adapter, Component, DType, Init, Instance, Options, Result as PluginResult, Role, op,
};
use espalier_registry::PluginFailure;
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, Rig, golden_path, largest_difference, micro_batch};
use espalier_trainer::Error;
use espalier_trainer::convert::Base;
use espalier_trainer::convert::merge::{self, MergeOptions};
use safetensors::SafeTensors;
use serde_json::{Value as Json, json};

/// An adapter for tests: on every `v_proj`, `B base(A x)`, or with `square` a function that no
/// weight can represent.
struct Around {
    square: bool,
}

impl Adapter for Around {
    fn adapt(&self, sites: &[Site]) -> PluginResult<Adaptation> {
        let mut adaptation = Adaptation::default();
        let joined = |site: &Site| site.kind == SiteKind::Linear && site.name.ends_with("v_proj");
        for (index, site) in sites.iter().enumerate().filter(|(_, site)| joined(site)) {
            let [rows, cols] = site.shape;
            let first = adaptation.params.len();
            for (name, size) in [("before", cols), ("behind", rows)] {
                adaptation.params.push(AdapterParam {
                    name: format!("{}.{name}", site.name),
                    shape: vec![size, size],
                    init: Init::Zeros,
                });
            }
            adaptation.joins.push(Join {
                site: index,
                fragment: self.fragment(site.shape),
                params: vec![first, first + 1],
            });
        }
        Ok(adaptation)
    }

    fn saved_config(&self, _: &[Site], _: &str) -> PluginResult<Json> {
        Ok(json!({}))
    }

    fn options_from_saved(&self, _: &Json) -> PluginResult<Options> {
        Ok(Options::default())
    }
}

impl Around {
    fn fragment(&self, [rows, cols]: [u64; 2]) -> Graph {
        let mut graph = Graph::new("around");
        let shape = [Dim::Tokens, Dim::Fixed(cols)];
        let x = graph.input(Source::Previous("input".to_owned()), shape, DType::COMPUTE);
        let before = graph.param("before", [cols, cols]);
        let behind = graph.param("behind", [rows, rows]);
        let dropped = op::dropout(&mut graph, x, 0.5);
        let inner = op::linear(&mut graph, dropped, before, None);
        let inner = if self.square {
            let ty = graph.type_of(inner).clone();
            graph.node("mul", &[inner, inner], &[], vec![ty], Attributes::new())
        } else {
            inner
        };
        let base = op::base(&mut graph, inner, rows);
        let out = op::linear(&mut graph, base, behind, None);
        graph.output("output", out);
        graph
    }
}

const fn around(
    name: &'static str,
    capabilities: &'static [(&'static str, &'static str)],
    create: espalier_interface::Create,
) -> Component {
    Component {
        name,
        role: Role::ADAPTER,
        doc: "for tests",
        options: &[],
        capabilities,
        create,
    }
}

const LINEAR: Component = around("around", &[("peft_types", "AROUND")], |_, _| {
    Ok(Instance::Adapter(Box::new(Around { square: false })))
});
const SQUARE: Component = around("square", &[("peft_types", "SQUARE")], |_, _| {
    Ok(Instance::Adapter(Box::new(Around { square: true })))
});

espalier_interface::declare_plugin! { name: "around", components: &[LINEAR, SQUARE] }

fn packed(name: &str) -> PathBuf {
    golden_path(&format!("packed/{name}"))
}

/// Merges `adapter` into `model`, as `out` in a new folder.
fn merged(
    model: &Path,
    adapter: &Path,
    options: MergeOptions,
    values: &[&str],
) -> Result<tempfile::TempDir, Error> {
    let place = tempfile::tempdir().expect("a folder");
    let mut sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("model.adapter={adapter:?}"))
        .set(format!("run.out={:?}", place.path().join("out")));
    for value in values {
        sources = sources.set(*value);
    }
    let resolved = resolve(&sources).expect("a config");
    merge::merge(&resolved, options, &Unobserved, &StopFlag::new()).map(|_| place)
}

fn out(place: &tempfile::TempDir) -> PathBuf {
    place.path().join("out")
}

fn tensors(model: &Path) -> Golden {
    Golden::read(&model.join("model.safetensors"))
}

fn logits(model: &Path, more: &[(&str, &str)]) -> Vec<f64> {
    let rows = Golden::open("packed/logits.safetensors").rows("tokens");
    let mut keys = vec![
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "16"),
        ("data.micro_batch", "2"),
    ];
    keys.extend(more);
    Rig::new(model, &keys).logits(&micro_batch(&rows, &rows))
}

#[test]
fn merged_weights_equal_pefts() {
    let golden = Golden::open("packed/merged.safetensors");
    let dense = tensors(&packed("dense"));
    for name in ["lora", "rslora", "tables"] {
        let adapter = packed(&format!("dense-{name}"));
        let place = merged(&packed("dense"), &adapter, MergeOptions::default(), &[]);
        let ours = tensors(&out(&place.expect(name)));
        assert!(ours.names().eq(dense.names()), "{name}");
        let mut changed = 0;
        for tensor in dense.names() {
            let theirs = format!("{name}.{tensor}");
            let theirs = if golden.names().any(|known| known == theirs) {
                golden.numbers(&theirs)
            } else {
                dense.numbers(tensor)
            };
            let difference = largest_difference(ours.numbers(tensor), theirs);
            assert!(difference <= 1e-6, "{name} {tensor}: {difference}");
            changed += usize::from(theirs != dense.numbers(tensor));
        }
        assert_eq!(
            changed,
            golden
                .names()
                .filter(|n| n.starts_with(&format!("{name}.")))
                .count()
        );
    }
}

#[test]
fn a_merged_model_gives_the_logits_of_its_adapter() {
    let golden = Golden::open("packed/logits.safetensors");
    for name in [
        "dense-lora",
        "dense-rslora",
        "dense-tables",
        "tied-tables",
        "tied-table",
    ] {
        let base = name.split('-').next().expect("a base");
        let place = merged(&packed(base), &packed(name), MergeOptions::default(), &[]);
        let model = out(place.as_ref().expect(name));
        let found = logits(&model, &[("plugins", "[\"lora\"]")]);
        let difference = largest_difference(&found, golden.numbers(name));
        assert!(difference <= 2e-5, "{name}: logits differ by {difference}");
        // A table that the adapter changes for only one of its readers is no longer tied.
        let config = fs::read_to_string(model.join("config.json")).expect("a config");
        let config: Json = serde_json::from_str(&config).expect("JSON");
        assert_eq!(config["tie_word_embeddings"], json!(false), "{name}");
    }
}

#[test]
fn decoded_weights_equal_those_of_the_adapters_training() {
    let adapter = packed("dense-lora");
    let decoded = MergeOptions {
        base: Some(Base::Decoded),
        dtype: None,
    };
    let nf4 = "plugins=[\"nf4\"]";
    let place = merged(&packed("dense"), &adapter, decoded, &[nf4]).expect("merged");
    let ours = tensors(&out(&place));
    let from_packed = merged(&packed("nf4"), &adapter, MergeOptions::default(), &[]);
    let from_packed = tensors(&out(&from_packed.expect("merged")));
    assert!(ours.names().eq(from_packed.names()));
    for name in ours.names() {
        assert_eq!(ours.numbers(name), from_packed.numbers(name), "{name}");
    }
    let text = format!("{:?}", adapter);
    let trained = logits(&packed("nf4"), &[("model.adapter", &text)]);
    let found = logits(&out(&place), &[("plugins", "[\"lora\"]")]);
    let difference = largest_difference(&found, &trained);
    assert!(difference <= 2e-5, "logits differ by {difference}");
}

#[test]
fn the_dtype_applies_to_all_weights() {
    let options = MergeOptions {
        base: None,
        dtype: Some(DType::BF16),
    };
    let place = merged(&packed("dense"), &packed("dense-lora"), options, &[]).expect("merged");
    let bytes = fs::read(out(&place).join("model.safetensors")).expect("weights");
    let file = SafeTensors::deserialize(&bytes).expect("a file");
    assert!(
        file.iter()
            .all(|(_, view)| view.dtype() == safetensors::Dtype::BF16)
    );
    let config = fs::read_to_string(out(&place).join("config.json")).expect("a config");
    assert!(config.contains("\"dtype\": \"bfloat16\""), "{config}");
}

/// Writes an adapter of `peft_type` for the one `v_proj` of the golden model: [32, 64].
fn write_around(folder: &Path, peft_type: &str) -> [Vec<f32>; 2] {
    let matrix = |size: usize, seed: usize| -> Vec<f32> {
        let entry = |i: usize| ((i * 37 + seed) % 101) as f32 / 101.0 - 0.5;
        (0..size * size).map(entry).collect()
    };
    let (before, behind) = (matrix(64, 5), matrix(32, 11));
    let bytes =
        |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|x| x.to_le_bytes()).collect() };
    let (before_bytes, behind_bytes) = (bytes(&before), bytes(&behind));
    let view = |size: usize, bytes| {
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![size, size], bytes)
            .expect("it fits")
    };
    let site = "model.layers.0.self_attn.v_proj";
    let file = [
        (format!("{site}.before"), view(64, &before_bytes)),
        (format!("{site}.behind"), view(32, &behind_bytes)),
    ];
    fs::create_dir(folder).expect("a folder");
    let weights = folder.join("adapter_model.safetensors");
    safetensors::serialize_to_file(file, None, &weights).expect("written");
    let config = json!({"peft_type": peft_type}).to_string();
    fs::write(folder.join("adapter_config.json"), config).expect("written");
    [before, behind]
}

#[test]
fn an_adapter_around_its_base_is_merged_with_its_bias() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("adapter");
    let [before, behind] = write_around(&folder, "AROUND");
    let done = merged(&packed("dense"), &folder, MergeOptions::default(), &[]).expect("merged");
    let (ours, dense) = (tensors(&out(&done)), tensors(&packed("dense")));
    let name = |kind: &str| format!("model.layers.0.self_attn.v_proj.{kind}");
    let (weight, bias) = (dense.numbers(&name("weight")), dense.numbers(&name("bias")));
    let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let product = |a: &[f64], b: &[f64], [n, k, m]: [usize; 3]| -> Vec<f64> {
        let entry = |i: usize| (0..k).map(|j| a[i / m * k + j] * b[j * m + i % m]).sum();
        (0..n * m).map(entry).collect()
    };
    let inner = product(weight, &wide(&before), [32, 64, 64]);
    let expected = product(&wide(&behind), &inner, [32, 32, 64]);
    let difference = largest_difference(ours.numbers(&name("weight")), &expected);
    assert!(difference <= 1e-5, "the weight differs by {difference}");
    let expected = product(&wide(&behind), bias, [32, 32, 1]);
    let difference = largest_difference(ours.numbers(&name("bias")), &expected);
    assert!(difference <= 1e-6, "the bias differs by {difference}");
}

#[test]
fn an_adapter_that_is_not_linear_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("adapter");
    write_around(&folder, "SQUARE");
    let error = merged(&packed("dense"), &folder, MergeOptions::default(), &[]);
    let error = error.expect_err("a square is not linear");
    let Error::Plugin(PluginFailure { plugin, source, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(plugin, "square");
    assert!(
        source
            .message
            .contains("v_proj`: the adapter cannot be merged"),
        "{source}"
    );
    assert!(
        source.message.contains("not linear in its input"),
        "{source}"
    );
    assert_eq!(error.exit_code(), 5);
}
