//! `gptq` against GPTQ in numpy, and calibration against products that are written out here.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

mod calibrating;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use espalier_data::{DataOptions, Dataset, Vocabulary};
use espalier_interface::calibration::{
    CalibratedCall, InputsFrom, Statistic, StatisticNumbers, StatisticValues,
};
use espalier_interface::{Component, DType, Instance, Options, Quantizer, Serial};
use espalier_tests::{Golden, Rig, TeamRig, golden_path, micro_batch, relative_norm};
use serde_json::{Value as Json, json};

use calibrating::{Bench, Recorder, Seen};

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

/// A weight `[N, M]` with the Gram matrix of its inputs, `[M, M]`.
struct Layer {
    weight: Vec<f32>,
    gram: Vec<f32>,
    shape: [u64; 2],
    tokens: u64,
}

impl Layer {
    fn of(golden: &Golden, name: &str) -> Self {
        let inputs = golden.rows(&format!("{name}|inputs"));
        let cols = inputs[0].len();
        let mut gram = vec![0.0f32; cols * cols];
        for row in &inputs {
            for (a, x) in row.iter().enumerate() {
                for (b, y) in row.iter().enumerate() {
                    // Whole numbers below 2^24: exact.
                    gram[a * cols + b] += (x * y) as f32;
                }
            }
        }
        let weight = golden.numbers(&format!("{name}|weight"));
        Layer {
            weight: weight.iter().map(|&x| x as f32).collect(),
            gram,
            shape: [(weight.len() / cols) as u64, cols as u64],
            tokens: inputs.len() as u64,
        }
    }

    /// The weight that `quantizer` makes of it, `[N, M]`.
    fn packed_by(&self, quantizer: &dyn Quantizer) -> (Vec<Vec<u8>>, Vec<f32>) {
        let format = quantizer.format(self.shape).expect("it fits");
        let segments = format.segments.iter();
        let mut memory: Vec<Vec<u8>> = segments
            .map(|one| vec![0xa5; one.bytes() as usize])
            .collect();
        let mut segments: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
        let bytes = quantizer.calibrated_workspace(self.shape).expect("bytes");
        let statistic = Statistic::Gram { dtype: DType::F32 };
        let numbers = StatisticNumbers::F32(&self.gram);
        let call = CalibratedCall {
            site: "site",
            weight: &self.weight,
            shape: self.shape,
            tokens: self.tokens,
            statistics: &[StatisticValues { statistic, numbers }],
            segments: &mut segments,
            workspace: &mut vec![0x5a; bytes as usize],
        };
        quantizer.encode_calibrated(call).expect("it is packed");
        let mut decoded = vec![0.0; self.weight.len()];
        let segments: Vec<&[u8]> = memory.iter().map(Vec::as_slice).collect();
        let [rows, cols] = self.shape;
        let done = quantizer.decode(&segments, self.shape, 0..rows, 0..cols, &mut decoded);
        done.expect("decoded");
        (memory, decoded)
    }

    /// `|X (W - Q)^T|^2`.
    fn error(&self, decoded: &[f32]) -> f64 {
        let cols = self.shape[1] as usize;
        let rows = self.weight.chunks(cols).zip(decoded.chunks(cols));
        rows.map(|(weight, decoded)| {
            let pairs = weight.iter().zip(decoded);
            let errors: Vec<f64> = pairs.map(|(w, q)| f64::from(*w) - f64::from(*q)).collect();
            let by_row = self.gram.chunks(cols).zip(&errors);
            by_row
                .map(|(gram, error)| {
                    let sum: f64 = gram
                        .iter()
                        .zip(&errors)
                        .map(|(g, e)| f64::from(*g) * e)
                        .sum();
                    sum * error
                })
                .sum::<f64>()
        })
        .sum()
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
    let [mut squares, mut largest] = [(); 2].map(|()| vec![0.0f64; width]);
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
            for b in 0..width {
                gram[a * width + b] += x[a] * x[b];
            }
        }
    }
    let (count, found) = &dense["model.layers.0.self_attn.q_proj"];
    assert_eq!(*count, tokens.len() as u64);
    let expected = [&squares, &largest, &gram, &gram];
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
fn outputs_on_held_out_rows_are_nearer_by_gptq_than_by_the_nearest_codes() {
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
        for (site, plain) in &plain {
            let found = gptq[site];
            assert!(found < *plain, "{bits} bits, {site}: {found} {plain}");
        }
    }
}
