//! `gptq` and `awq` against GPTQ and AWQ in numpy, and calibration against products that are
//! written out here.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

mod calibrating;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use espalier_data::{DataOptions, Dataset, Vocabulary};
use espalier_interface::calibration::InputsFrom;
use espalier_interface::{Component, Instance, Options, Quantizer, Serial};
use espalier_tests::{Golden, Rig, TeamRig, golden_path, micro_batch, relative_norm};
use serde_json::{Value as Json, json};

use calibrating::{Bench, Layer, Recorder, Seen};

fn gptq(given: &Json) -> Box<dyn Quantizer> {
    made(&espalier_int4::GPTQ, given)
}

fn made(component: &Component, given: &Json) -> Box<dyn Quantizer> {
    let mut options = Options::default();
    for spec in component.options {
        let default = serde_json::from_str(spec.default).expect("JSON text");
        options.0.insert(spec.name.to_owned(), default);
    }
    let given = given.as_object().expect("options").clone();
    options.0.extend(given);
    match (component.create)(&options, Arc::new(Serial)) {
        Ok(Instance::Quantizer(quantizer)) => quantizer,
        Ok(_) => panic!("{} is not a quantizer", component.name),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn gptq_finds_the_codes_of_the_published_algorithm() {
    let golden = Golden::open("gptq/layers.safetensors");
    let mut cases = 0;
    for name in golden.names().filter(|name| name.ends_with("|codes")) {
        let parts: Vec<&str> = name.split('|').collect();
        let [of, bits, group, order, symmetry, damping, _] = parts[..] else {
            panic!("{name} is no case");
        };
        let number = |text: &str| text.parse::<Json>().expect("a number");
        let quantizer = gptq(&json!({
            "bits": number(bits), "group_size": number(group), "damping": number(damping),
            "act_order": order == "ordered", "symmetric": symmetry == "symmetric",
            "scale_dtype": "f32",
        }));
        let layer = Layer::of(&golden, of);
        let (_, decoded) = layer.packed_by(&*quantizer);
        let case = name.trim_end_matches("|codes");
        let numbers = |what: &str| golden.numbers(&format!("{case}|{what}"));
        let [codes, scales, zeros] = ["codes", "scales", "zeros"].map(numbers);
        let group = codes.len() / scales.len();
        let expected: Vec<f32> = codes
            .iter()
            .enumerate()
            .map(|(at, code)| ((code - zeros[at / group]) as f32) * scales[at / group] as f32)
            .collect();
        let differ = decoded
            .iter()
            .zip(&expected)
            .filter(|(a, b)| a != b)
            .count();
        let (found, published) = (layer.error(&decoded), layer.error(&expected));
        println!(
            "{case}: {differ} of {} differ, error {found:.5e} {published:.5e}",
            codes.len()
        );
        // The factor is taken of H here and of its inverse there: a code between two may differ.
        assert!(
            differ * 100 <= codes.len(),
            "{case}: {differ} weights differ"
        );
        assert!(
            found <= 1.001 * published,
            "{case}: {found} after {published}"
        );
        cases += 1;
    }
    assert_eq!(cases, 8);
}

#[test]
fn awq_finds_the_factors_and_codes_of_the_published_search() {
    let layers = Golden::open("gptq/layers.safetensors");
    let golden = Golden::open("awq/layers.safetensors");
    let mut cases = 0;
    for name in golden.names().filter(|name| name.ends_with("|codes")) {
        let parts: Vec<&str> = name.split('|').collect();
        let [of, bits, group, symmetry, clip, _] = parts[..] else {
            panic!("{name} is no case");
        };
        let number = |text: &str| text.parse::<Json>().expect("a number");
        let quantizer = made(
            &espalier_int4::AWQ,
            &json!({
                "bits": number(bits), "group_size": number(group), "clip": clip == "clip",
                "symmetric": symmetry == "symmetric", "scale_dtype": "f32",
            }),
        );
        let layer = Layer::of(&layers, of);
        let (segments, decoded) = layer.packed_by(&*quantizer);
        let case = name.trim_end_matches("|codes");
        let numbers = |what: &str| golden.numbers(&format!("{case}|{what}"));
        let [codes, scales, zeros, factors] = ["codes", "scales", "zeros", "factors"].map(numbers);
        let found: Vec<f64> = segments
            .last()
            .expect("factors")
            .chunks_exact(4)
            .map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().expect("four bytes"))))
            .collect();
        // One of 20 ratios: another is more than 1 % away. In symmetric grids the largest weight is
        // halfway between two codes, so that the last bit of a scale may choose another ratio.
        let away = relative_norm(&found, factors);
        assert!(
            away < 1e-5 || symmetry == "symmetric",
            "{case}: factors {found:?}, expected {factors:?}"
        );
        let group = codes.len() / scales.len();
        let expected: Vec<f32> = codes
            .iter()
            .enumerate()
            .map(|(at, code)| {
                let value = (code - zeros[at / group]) * scales[at / group];
                (value * factors[at % factors.len()]) as f32
            })
            .collect();
        let far = |(a, b): &(&f32, &f32)| (**a - **b).abs() > 1e-5 * b.abs().max(1e-3);
        let differ = decoded.iter().zip(&expected).filter(far).count();
        let (found, published) = (layer.error(&decoded), layer.error(&expected));
        println!(
            "{case}: {differ} of {} differ, error {found:.5e} {published:.5e}",
            codes.len()
        );
        // Clipping is kept here for the rows that gain by it, and one step further is tried.
        assert!(
            clip == "clip" || symmetry == "symmetric" || differ * 100 <= codes.len(),
            "{case}: {differ} weights differ"
        );
        assert!(
            found <= 1.001 * published,
            "{case}: {found} after {published}"
        );
        cases += 1;
    }
    assert_eq!(cases, 7);
}

#[test]
fn gptq_has_less_error_than_the_nearest_codes_and_leaves_dead_inputs_to_them() {
    let golden = Golden::open("gptq/layers.safetensors");
    for bits in [4, 3] {
        let quantizer = gptq(&json!({"bits": bits, "group_size": 32}));
        let mut layer = Layer::of(&golden, "wide");
        let (_, decoded) = layer.packed_by(&*quantizer);
        let found = layer.error(&decoded);
        let cols = layer.shape[1] as usize;
        let gram = layer.gram.clone();
        // Without inputs there is nothing to make up for.
        layer.gram.fill(0.0);
        let (_, nearest) = layer.packed_by(&*quantizer);
        layer.gram.copy_from_slice(&gram);
        let plain = layer.error(&nearest);
        println!("{bits} bits: error {found:.4e} of gptq, {plain:.4e} of the nearest codes");
        assert!(found < 0.5 * plain, "{bits} bits: {found} against {plain}");
        // A dead channel: its weights are the nearest, in the grids of the original weight.
        let dead = 5;
        for other in 0..cols {
            layer.gram[dead * cols + other] = 0.0;
            layer.gram[other * cols + dead] = 0.0;
        }
        let (_, decoded) = layer.packed_by(&*quantizer);
        let rows = decoded.chunks(cols).zip(nearest.chunks(cols));
        for (found, nearest) in rows {
            assert_eq!(found[dead].to_bits(), nearest[dead].to_bits());
        }
    }
}

/// The rows of these tests.
fn rows() -> Vec<Vec<i32>> {
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    // Rows of several lengths.
    vec![
        rows[0].clone(),
        rows[1][..17].to_vec(),
        rows[1][20..].to_vec(),
    ]
}

/// What a recorder sees of the tiny model.
fn recorded(inputs: InputsFrom) -> Seen {
    let bench = Bench::of(&golden_path("llama/tiny-trained"));
    let int4 = made(&espalier_int4::INT4, &json!({"group_size": 16}));
    let recorder = Arc::new(Recorder::new(int4, inputs));
    bench.calibrate(&(Arc::clone(&recorder) as Arc<dyn Quantizer>), &rows());
    recorder.seen()
}

#[test]
fn statistics_are_those_of_what_each_site_reads() {
    let dense = recorded(InputsFrom::Dense);
    assert_eq!(dense.len(), 14, "the linears of two layers");
    // The inputs of the first layer's queries, written out: norms of rows of the token table.
    let model = Golden::read(&golden_path("llama/tiny-trained/model.safetensors"));
    let table = model.numbers("model.embed_tokens.weight");
    let norm = model.numbers("model.layers.0.input_layernorm.weight");
    let width = norm.len();
    let [mut squares, mut largest, mut means] = [(); 3].map(|()| vec![0.0f64; width]);
    let mut gram = vec![0.0f64; width * width];
    let tokens: Vec<i32> = rows().concat();
    for &token in &tokens {
        let row = &table[token as usize * width..][..width];
        let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
        let scale = 1.0 / (mean + 1e-5).sqrt();
        let x: Vec<f64> = row.iter().zip(norm).map(|(x, w)| x * scale * w).collect();
        for a in 0..width {
            squares[a] += x[a] * x[a] / tokens.len() as f64;
            largest[a] = largest[a].max(x[a].abs());
            means[a] += x[a].abs() / tokens.len() as f64;
            for b in 0..width {
                gram[a * width + b] += x[a] * x[b];
            }
        }
    }
    let (count, found) = &dense["model.layers.0.self_attn.q_proj"];
    assert_eq!(*count, tokens.len() as u64);
    let expected = [&squares, &largest, &gram, &gram, &means];
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = relative_norm(found, expected);
        assert!(error < 1e-6, "statistic {at}: {error}");
    }
    // What reads one value has one set of numbers.
    let of = |site: &str| &dense[&format!("model.layers.0.{site}")].1;
    for (one, other) in [("q_proj", "k_proj"), ("q_proj", "v_proj")] {
        assert!(of(&format!("self_attn.{one}")) == of(&format!("self_attn.{other}")));
    }
    assert!(of("mlp.gate_proj") == of("mlp.up_proj"));
    assert!(of("mlp.gate_proj") != of("self_attn.q_proj"));
    // Packed layers change the inputs of the layers after them, and only those.
    let packed = recorded(InputsFrom::PackedLayers);
    for (site, (_, numbers)) in &dense {
        let same = packed[site].1 == *numbers;
        assert_eq!(same, site.contains("layers.0"), "{site}");
        let moved = relative_norm(&packed[site].1[0], &numbers[0]);
        assert!(moved < 0.5, "{site}: {moved}");
    }
}

#[test]
fn a_calibrated_base_has_the_same_bits_on_any_threads_and_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.jsonl");
    let lines = rows()
        .into_iter()
        .map(|row| format!("{}\n", json!({"input_ids": row})));
    fs::write(&path, lines.collect::<String>()).expect("written");
    let files = json!([path]).to_string();
    let logits = |plugins: &str, keys: &[(&str, &str)]| {
        let mut all = vec![
            ("plugins", plugins),
            ("data.calibration_files", files.as_str()),
            ("quantizer.gptq.group_size", "16"),
            ("quantizer.int4.group_size", "16"),
            ("model.compute", "\"f32\""),
            ("data.max_seq_len", "48"),
        ];
        all.retain(|(key, _)| {
            let section = key
                .strip_prefix("quantizer.")
                .and_then(|key| key.split('.').next());
            section.is_none_or(|section| plugins.contains(&format!("\"{section}\"")))
        });
        all.extend(keys);
        let rig = TeamRig::new(&golden_path("llama/tiny-trained"), &all);
        rig.logits(&micro_batch(&rows()[..1], &rows()[..1]))
    };
    let bits = |logits: Vec<f64>| -> Vec<u64> { logits.into_iter().map(f64::to_bits).collect() };
    let alone = bits(logits("[\"gptq\", \"lora\"]", &[]));
    let ranks = [("run.ranks", "2")];
    assert!(
        alone == bits(logits("[\"gptq\", \"lora\", \"ddp\"]", &ranks)),
        "ddp"
    );
    assert!(
        alone == bits(logits("[\"gptq\", \"lora\", \"fsdp\"]", &ranks)),
        "fsdp"
    );
    assert!(alone != bits(logits("[\"int4\", \"lora\"]", &[])));
    for threads in ["1", "3"] {
        let keys = [
            ("plugins", "[\"gptq\", \"lora\"]"),
            ("data.calibration_files", files.as_str()),
            ("quantizer.gptq.group_size", "16"),
            ("model.compute", "\"f32\""),
            ("data.max_seq_len", "48"),
            ("run.threads", threads),
        ];
        let rig = Rig::new(&golden_path("llama/tiny-trained"), &keys);
        let found = rig.logits(&micro_batch(&rows()[..1], &rows()[..1]));
        assert!(alone == bits(found), "{threads} threads");
    }
}

#[test]
fn outputs_on_held_out_rows_are_nearer_by_gptq_and_awq_than_by_the_nearest_codes() {
    let quickstart = |path: &str| {
        let root = golden_path("").join("../../configs/quickstart");
        root.join(path)
    };
    let bench = Bench::of(&quickstart("model"));
    let rows = |file: &str, count: usize| -> Vec<Vec<i32>> {
        let vocabulary = Vocabulary::new(quickstart("model"), 2048);
        let options = DataOptions {
            max_seq_len: 64,
            ..DataOptions::default()
        };
        let files = [quickstart(file)];
        let all = Dataset::load(&files, &options, &vocabulary, &mut |_| {}).expect("rows");
        let tokens = |row| all.sequence(row).expect("a row").tokens;
        (0..count).map(tokens).collect()
    };
    let (training, held_out) = (rows("data/train.jsonl", 24), rows("data/held-out.jsonl", 4));
    let int4 = made(&espalier_int4::INT4, &json!({"group_size": 64}));
    let recorder = Arc::new(Recorder::new(int4, InputsFrom::Dense));
    bench.calibrate(&(Arc::clone(&recorder) as Arc<dyn Quantizer>), &held_out);
    let inputs = recorder.seen();
    let sum = |errors: &BTreeMap<String, f64>| errors.values().sum::<f64>();
    for bits in [4, 3] {
        let options = json!({"bits": bits, "group_size": 64});
        let errors = |component: &Component| {
            let quantizer = Arc::from(made(component, &options));
            bench.errors(&quantizer, &training, &inputs)
        };
        let plain = errors(&espalier_int4::INT4);
        assert_eq!(plain.len(), 28);
        let gptq = errors(&espalier_int4::GPTQ);
        let share = sum(&gptq) / sum(&plain);
        println!("{bits} bits: {share:.3} by gptq");
        assert!(share < 0.2, "{bits} bits: {share}");
        let awq = errors(&espalier_int4::AWQ);
        let share = sum(&awq) / sum(&plain);
        println!("{bits} bits: {share:.3} by awq");
        assert!(share < 0.8, "{bits} bits: {share}");
        for (site, plain) in &plain {
            for found in [gptq[site], awq[site]] {
                assert!(found < *plain, "{bits} bits, {site}: {found} {plain}");
            }
        }
    }
}
