//! A comparison's measurements of an arm against simple oracles: weight errors, divergence,
//! documents' losses.

mod measuring;

use std::fs;

use espalier_compare::base::{self, Against};
use espalier_compare::dense_baseline::DenseBaseline;
use espalier_compare::record::{Base, WeightError};
use espalier_engine::document_loss::DocumentLoss;
use espalier_engine::step;
use espalier_interface::Services;
use espalier_tests::rows::{file, golden_rows};
use espalier_tests::{Golden, golden_path, largest};
use espalier_trainer::train::{HeldOut, HeldOutLog, LoadedBase, held_out_file};

use measuring::{
    Notes, arm, assert_divergence, dense_baseline, divergence, golden_predictions,
    off_weight_error, rows, top,
};

#[test]
fn document_losses_are_independent_and_add_up_to_the_runs() {
    let (_kept, data) = rows();
    let packed = arm(&data, &[("plugins", "\"nf4\"")]);
    let evaluated = step::evaluate(packed.team.first(), &packed.rows, 42, &mut |_| Ok(()));
    let whole = evaluated.expect("a loss");
    // Rows of a step are packed longest first, not in file order.
    let alone = arm(
        &data,
        &[
            ("plugins", "\"nf4\""),
            ("data.pack_tokens", "48"),
            ("data.batch_size", "1"),
        ],
    );
    let losses = alone.losses();
    assert_eq!((whole.documents.len(), losses.len()), (9, 9));
    for (number, (found, expected)) in whole.documents.iter().zip(&losses).enumerate() {
        assert!(
            (found.loss - expected.loss).abs() <= 1e-4,
            "{number}: {found:?} {expected:?}"
        );
        let counts = |one: &DocumentLoss| [one.correct, one.trained];
        assert_eq!(counts(found), counts(expected), "document {number}");
    }
    let held_out = HeldOut {
        step: 7,
        documents: whole.documents.clone(),
    };
    let total = held_out.total();
    assert_eq!(total.trained, whole.trained_tokens);
    assert!((total.loss / total.trained as f64 - whole.loss).abs() < 1e-12);
    assert_eq!(
        total.correct as f64 / total.trained as f64,
        whole.token_accuracy
    );

    let run = tempfile::tempdir().expect("a run");
    let log = HeldOutLog::of(run.path());
    log.write(7, vec![DocumentLoss::default()])
        .expect("written");
    log.write(7, whole.documents.clone()).expect("written anew");
    let text = fs::read(held_out_file(run.path(), 7)).expect("a file");
    let read: HeldOut = serde_json::from_slice(&text).expect("held-out losses");
    assert_eq!(read, held_out);
    let lost = vec![DocumentLoss {
        loss: f64::INFINITY,
        ..DocumentLoss::default()
    }];
    log.write(8, lost).expect("written");
    let text = fs::read(held_out_file(run.path(), 8)).expect("a file");
    let read: HeldOut = serde_json::from_slice(&text).expect("a loss that is no number");
    assert!(read.documents[0].loss.is_nan());
}

#[test]
fn weight_errors_equal_those_of_bitsandbytes_decoded_weights() {
    let (_kept, data) = rows();
    let sites = "[{match=\"*.1.mlp.down_proj\", quantizer=\"int8\"}, \
                 {match=\"*.o_proj\", quantizer=\"none\"}]";
    let mixed = arm(&data, &[("plugins", "\"nf4\""), ("sites", sites)]);
    let mixed = mixed.base(Against::Nothing);
    let arm = arm(&data, &[("plugins", "\"nf4,lora\"")]);
    assert_eq!(arm.loaded.report.encoded, 14);
    let base = arm.base(Against::Nothing);
    let dense = Golden::read(&golden_path("llama/tiny-trained/model.safetensors"));
    let decoded = Golden::open("llama/base_dequant_nf4.safetensors");
    assert_eq!(base.weights.len(), 14);
    for found in &base.weights {
        let (dense, decoded) = (dense.numbers(&found.name), decoded.numbers(&found.name));
        let off = off_weight_error(found, dense, decoded);
        assert!(off.iter().all(|off| *off < 1e-6), "{found:?}: {off:?}");
        assert!((0.005..0.02).contains(&found.relative()), "{found:?}");
        assert_eq!(found.elements, dense.len() as u64);
        let layer = found.layer.expect("a layer");
        let path = found.name.strip_prefix(&format!("model.layers.{layer}."));
        let path = path.expect("its own layer").strip_suffix(".weight");
        assert!(
            path.expect("a weight")
                .ends_with(&format!(".{}", found.kind))
        );
        assert_eq!(found.quantizer, "nf4");
    }
    let bytes = base.weights.iter().map(|weight| weight.bytes).sum::<u64>();
    let elements = base
        .weights
        .iter()
        .map(|weight| weight.elements)
        .sum::<u64>();
    assert_eq!((base.packed_bytes, base.packed_weights), (bytes, elements));
    assert_eq!((base.packed_weights, base.encoded), (92_160, 14));
    // Tables, head and norms in f32 beside them; the adapter is not part of the base.
    let others = 2 * 512 * 64 + 5 * 64;
    assert_eq!(base.frozen_weights, base.packed_weights + others);
    assert_eq!(base.frozen_bytes, base.packed_bytes + 4 * others);
    assert!(base.encode_secs > 0.0);

    assert_eq!(mixed.weights.len(), 12, "two are left dense");
    for (found, kept) in mixed.weights.iter().filter_map(|found| {
        let same = base.weights.iter().find(|weight| weight.name == found.name);
        Some((found, same?))
    }) {
        let is_exception = found.name == "model.layers.1.mlp.down_proj.weight";
        assert_eq!(found.quantizer, if is_exception { "int8" } else { "nf4" });
        assert_eq!(is_exception, found != kept);
        assert_eq!(is_exception, found.relative() < 0.1 * kept.relative());
    }
}

#[test]
fn a_format_without_a_description_is_decoded_by_its_quantizer() {
    let (_kept, data) = rows();
    let library = espalier_samples::library("decode-only");
    let place = tempfile::tempdir().expect("a folder");
    let name = library.file_name().expect("a library is a file");
    fs::copy(&library, place.path().join(name)).expect("a copy");
    let folder = format!("[{:?}]", place.path());
    let keys = [
        ("run.plugin_dirs", folder.as_str()),
        ("plugins", "\"decode-only\""),
    ];
    let base = arm(&data, &keys).base(Against::Nothing);
    let table = [-1.0, -0.5783, -0.3202, 0.0, 0.2123, 0.4418, 0.6923, 1.0f32];
    let weights = Golden::read(&golden_path("llama/tiny-trained/model.safetensors"));
    assert_eq!(base.weights.len(), 14);
    for found in &base.weights {
        let dense = weights.numbers(&found.name);
        let decoded = dense.chunks(64).flat_map(|block| {
            let scale = largest(block.iter().map(|x| x.abs())) as f32;
            let nearest = move |&x: &f64| {
                let value = |at: f32| f64::from(at * scale);
                let closer = |a: &f64, b: &f64| (a - x).abs().total_cmp(&(b - x).abs());
                table.map(value).into_iter().min_by(closer).expect("eight")
            };
            block.iter().map(nearest)
        });
        let off = off_weight_error(found, dense, &decoded.collect::<Vec<f64>>());
        let bounds = [1e-5, 1e-12, 1e-5];
        let is_near = off.iter().zip(bounds).all(|(off, bound)| *off < bound);
        assert!(is_near, "{found:?}: {off:?}");
    }
}

#[test]
fn prepacked_weights_have_no_weight_error() {
    let rows = file("rows.jsonl", "{\"input_ids\": [3, 1, 4, 1, 5, 9, 2, 6]}\n");
    let model = format!("{:?}", golden_path("packed/nf4"));
    let packed = arm(&rows.path, &[("model.path", &model)]);
    let notes = Notes::default();
    let subject = LoadedBase {
        observer: &notes,
        ..packed.loaded_base()
    };
    let base = base::measure(&subject, packed.loaded.clone(), Against::Nothing).expect("a base");
    assert_eq!((base.encoded, base.weights.len()), (0, 0));
    assert!(base.packed_weights > 0 && base.packed_bytes * 2 > base.packed_weights);
    let notes = notes.0.into_inner().expect("notes");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("the files hold packed weights"),
        "{notes:?}"
    );
}

#[test]
fn the_divergence_covers_all_trained_tokens() {
    let (_kept, data) = rows();
    for compute in ["\"f32\"", "\"bf16\""] {
        let dense = arm(&data, &[("model.compute", compute)]);
        let (_place, dense_baseline, base) = dense_baseline(&dense, 1 << 30);
        assert!(base.divergence.is_none());
        assert!(base.weights.is_empty() && base.packed_bytes == 0 && base.encoded == 0);
        let same = dense
            .base(Against::Dense(&dense_baseline))
            .divergence
            .expect("tokens");
        assert_eq!((same.mean, same.largest, same.same_top), (0.0, 0.0, 1.0));

        let packed = arm(&data, &[("plugins", "\"nf4\""), ("model.compute", compute)]);
        let found = packed
            .base(Against::Dense(&dense_baseline))
            .divergence
            .expect("tokens");
        let (expected, predicted) = (dense.predictions(), packed.predictions());
        let pairs = || expected.iter().zip(&predicted);
        let each = pairs().map(|((p, _), (q, _))| divergence(p, q)).collect();
        let same = pairs().filter(|((p, _), (q, _))| top(p) == top(q)).count();
        assert_divergence(&found, each, same as f64 / expected.len() as f64);
        assert!(found.mean > 1e-3 && found.same_top < 1.0, "{found:?}");
    }
}

#[test]
fn document_divergences_are_independent() {
    let (_kept, data) = rows();
    // Rows of a step are packed in another order than the file's; rows of one micro-batch each keep
    // the file order.
    let alone = [("data.pack_tokens", "48"), ("data.batch_size", "1")];
    let nf4 = [("plugins", "\"nf4\"")];
    let (expected, predicted) = (
        arm(&data, &alone).predictions(),
        arm(&data, &[&alone[..], &nf4].concat()).predictions(),
    );
    let (_place, dense_baseline, dense) = dense_baseline(&arm(&data, &[]), 1 << 30);
    let base = arm(&data, &nf4).base(Against::Dense(&dense_baseline));
    let found = base.divergence.expect("tokens");
    let held_out = dense.held_out.expect("documents").documents;
    assert_eq!((base.vocab, found.documents.len()), (512, 9));
    let mut next = expected.iter().zip(&predicted);
    for (number, (found, document)) in found.documents.iter().zip(&held_out).enumerate() {
        assert_eq!(found.tokens, document.trained, "document {number}");
        let tokens = next.by_ref().take(document.trained as usize);
        let sum: f64 = tokens.map(|((p, _), (q, _))| divergence(p, q)).sum();
        // The products of a packed batch may round differently.
        let apart = (found.sum - sum).abs();
        assert!(apart <= 1e-4 * (0.1 + sum), "{number}: {found:?} {sum}");
    }
    let sum: f64 = found.documents.iter().map(|document| document.sum).sum();
    assert!((sum / found.tokens as f64 / found.mean - 1.0).abs() < 1e-12);

    // An earlier record without documents is still read.
    let mut old = serde_json::to_value(&found).expect("JSON");
    old.as_object_mut().expect("an object").remove("documents");
    let old: espalier_compare::record::Divergence = serde_json::from_value(old).expect("a record");
    assert!(old.documents.is_empty() && old.mean == found.mean);
}

#[test]
fn divergence_and_error_of_nf4_and_hqq_equal_the_peers() {
    let (_kept, data) = golden_rows();
    let keys = [("data.max_seq_len", "48"), ("data.batch_size", "2")];
    let (_place, dense_baseline, _) = dense_baseline(&arm(&data, &keys), 1 << 30);
    let dense = golden_predictions("forward_tiny-trained");
    // Errors of all weights together: decoded weights of bitsandbytes and hqq, in torch, in f64.
    for (quantizer, error) in [("nf4", 0.008_442_278_98), ("hqq", 0.007_347_819_77)] {
        let plugins = format!("{quantizer:?}");
        let packed = arm(&data, &[&keys[..], &[("plugins", &plugins)]].concat());
        let base = packed.base(Against::Dense(&dense_baseline));
        let predicted = golden_predictions(&format!("base_forward_{quantizer}"));
        let each = dense.iter().zip(&predicted);
        let sum: f64 = each.map(|(p, q)| divergence(p, q)).sum();
        let (found, expected) = (base.divergence.expect("tokens"), sum / 94.0);
        assert_eq!((found.tokens, dense.len()), (94, 94));
        let apart = (found.mean / expected - 1.0).abs();
        assert!(apart < 1e-4, "{quantizer}: {} {expected}", found.mean);
        let sum = |of: fn(&WeightError) -> f64| base.weights.iter().map(of).sum::<f64>();
        let found = sum(|weight| weight.squared_error) / sum(|weight| weight.squared_norm);
        let apart = (found / error - 1.0).abs();
        assert!(apart < 1e-6, "{quantizer}: {found} {error}");
    }
}

#[test]
fn few_tokens_are_spread_over_all_documents() {
    let (_kept, data) = rows();
    let dense = arm(&data, &[]);
    let packed = arm(&data, &[("plugins", "\"nf4\"")]);
    // Room for 20 tokens, and some bytes.
    let (_place, dense_baseline, _) = dense_baseline(&dense, 20 * 512 * 4 + 100);
    let found = packed
        .base(Against::Dense(&dense_baseline))
        .divergence
        .expect("tokens");
    let (expected, predicted) = (dense.predictions(), packed.predictions());
    let trained = expected.len();
    let taken = |index: &usize| (index + 1) * 20 / trained > index * 20 / trained;
    let chosen: Vec<usize> = (0..trained).filter(taken).collect();
    let each = chosen
        .iter()
        .map(|&at| divergence(&expected[at].0, &predicted[at].0));
    let same = chosen
        .iter()
        .filter(|&&at| top(&expected[at].0) == top(&predicted[at].0));
    let same = same.count() as f64 / 20.0;
    assert_divergence(&found, each.collect(), same);
}

#[test]
fn no_number_depends_on_the_number_of_threads() {
    let (_kept, data) = rows();
    let of = |threads: &str| {
        let keys = [("run.threads", threads), ("model.compute", "\"bf16\"")];
        let dense = arm(&data, &keys);
        let (_place, dense_baseline, base) = dense_baseline(&dense, 1 << 20);
        let packed = arm(&data, &[&keys[..], &[("plugins", "\"nf4\"")]].concat());
        assert_eq!(packed.services.threads().to_string(), threads);
        let packed = packed.base(Against::Dense(&dense_baseline));
        [base, packed].map(|base| Base {
            encode_secs: 0.0,
            ..base
        })
    };
    let one = of("1");
    assert!(
        one[1]
            .divergence
            .as_ref()
            .is_some_and(|found| found.mean > 0.0)
    );
    assert_eq!(of("2"), one);
    assert_eq!(of("3"), one);
}

#[test]
fn a_trained_adapter_is_excluded_and_restored() {
    let (_kept, data) = rows();
    let adapter = format!("{:?}", golden_path("llama/adapter_trained_nf4"));
    let with = [
        ("plugins", "\"nf4,lora\""),
        ("model.adapter", adapter.as_str()),
    ];
    let (with, without) = (arm(&data, &with), arm(&data, &[("plugins", "\"nf4\"")]));
    let dense = arm(&data, &[]);
    let (_place, dense_baseline, _) = dense_baseline(&dense, 1 << 30);
    let before = with.predictions();
    let bare = without.predictions();
    assert_ne!(before, bare, "the adapter changes nothing");
    let found = with.base(Against::Dense(&dense_baseline));
    let expected = without.base(Against::Dense(&dense_baseline));
    assert_eq!(found.divergence, expected.divergence);
    assert_eq!(found.held_out, expected.held_out);
    assert_eq!(
        (found.frozen_bytes, found.packed_bytes),
        (expected.frozen_bytes, expected.packed_bytes)
    );
    assert_eq!(with.predictions(), before, "the adapter is as it was");
}

#[test]
fn a_base_is_recorded_and_a_dense_baseline_is_remeasured_if_needed() {
    let (_kept, data) = rows();
    let out = tempfile::tempdir().expect("a comparison");
    let out = out.path();
    let dense = arm(&data, &[]);
    let packed = arm(&data, &[("plugins", "\"nf4\"")]);
    let (_place, measured, base) = dense_baseline(&dense, 1 << 30);
    fs::create_dir_all(out.join("arms/dense")).expect("an arm");
    fs::create_dir_all(out.join("arms/nf4")).expect("an arm");
    assert!(base::read(out, "dense").is_none());
    base::write(out, "dense", &base).expect("written");
    assert_eq!(base::read(out, "dense"), Some(base));
    let arms = || ["nf4"].into_iter();
    assert!(!base::needs_dense_baseline(&measured, out, arms()));

    // Another process starts without it.
    let mut anew = DenseBaseline::new(out);
    assert!(base::needs_dense_baseline(&anew, out, arms()));
    let refused = packed
        .try_base(Against::Dense(&anew))
        .expect_err("not measured");
    assert_eq!(refused.exit_code(), 2);
    base::measure_dense_baseline(&dense.loaded_base(), &mut anew).expect("measured");
    let again = packed.base(Against::Dense(&anew));
    assert_eq!(
        again.divergence,
        packed.base(Against::Dense(&measured)).divergence
    );
    base::write(out, "nf4", &again).expect("written");
    assert!(!base::needs_dense_baseline(
        &DenseBaseline::new(out),
        out,
        arms()
    ));

    let (_kept, others) = golden_rows();
    let other = arm(&others, &[("data.max_seq_len", "48")]);
    let refused = other
        .try_base(Against::Dense(&anew))
        .expect_err("other rows");
    assert!(
        refused.to_string().contains("other held-out rows"),
        "{refused}"
    );

    let left = fs::read_dir(out).expect("a folder").count();
    assert_eq!(left, 1, "the dense baseline's file has no name");
}
