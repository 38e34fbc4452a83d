//! Bits chosen by measured divergence: against a comparison's measurements, against uniform bits on
//! held-out rows, and with a measurement that is stopped and goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use espalier_compare::base;
use espalier_compare::bits::{Asked, BitChoice, BitTable, choice_of_table, choose_bits};
use espalier_compare::report::Report;
use espalier_compare::statistics::Interval;
use espalier_config::{ResolvedConfig, Sources, resolve, toml_value};
use espalier_engine::observer::{Event, Observer, Unobserved};
use espalier_system::files::Continue;
use espalier_system::stop::StopFlag;
use espalier_tests::golden_path;
use espalier_tests::rows::golden_rows;
use espalier_trainer::bytes::Bytes;
use serde_json::{Value as Json, json};

const OPTIONS: [&str; 4] = ["hqq:bits=2", "hqq:bits=3", "hqq:bits=4", "hqq:bits=8"];
const MUCH: Bytes = Bytes(1 << 40);

fn config(model: &Path, data: &Path, keys: &[(&str, Json)]) -> ResolvedConfig {
    let sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("data.files=[{data:?}]"))
        .set("model.compute=\"f32\"")
        .set("data.max_seq_len=256");
    let set = |sources: Sources, (key, value): &(&str, Json)| {
        sources.set(format!("{key}={}", toml_value(value)))
    };
    resolve(&keys.iter().fold(sources, set)).expect("a config")
}

fn asked(table: &Path, options: &[&str], memory: Bytes) -> Asked {
    Asked {
        options: options.iter().map(|&option| option.to_owned()).collect(),
        memory,
        tokens: 512,
        table: table.to_owned(),
    }
}

/// Requests a stop after some measurements, and counts them.
struct StopAfter<'a> {
    stop: &'a StopFlag,
    most: u64,
    seen: Mutex<u64>,
}

impl Observer for StopAfter<'_> {
    fn observe(&self, event: &Event<'_>) {
        if let Event::OptionMeasured { done, total, .. } = *event {
            let mut seen = self.seen.lock().expect("not poisoned");
            *seen += 1;
            assert_eq!(done, *seen, "of {total}");
            if done == self.most {
                self.stop.request(15);
            }
        }
    }
}

/// Measures and chooses, stopped after `most` measurements: what came of it, and how many it made.
fn stopped_after(
    resolved: &ResolvedConfig,
    asked: &Asked,
    most: u64,
) -> (Result<BitChoice, espalier_compare::Error>, u64) {
    let stop = StopFlag::new();
    let observer = StopAfter {
        stop: &stop,
        most,
        seen: Mutex::default(),
    };
    let chosen = choose_bits(resolved, asked, &observer, &stop);
    let seen = *observer.seen.lock().expect("not poisoned");
    (chosen, seen)
}

/// The mean divergence of each arm on the rows of `held_out`.
fn divergences(model: &Path, held_out: &Path, arms: &[Json], out: &Path) -> Vec<f64> {
    let keys = [
        ("arms", json!(arms)),
        ("data.eval_files", json!([held_out])),
        ("run.out", json!(out)),
        ("compare.eval_only", json!(true)),
    ];
    let resolved = config(model, held_out, &keys);
    let compared =
        espalier_compare::run(&resolved, Continue::Refuse, &Unobserved, &StopFlag::new());
    compared
        .expect("a comparison")
        .check_failures()
        .expect("no failure");
    let of = |arm: &Json| {
        let name = arm["name"].as_str().expect("a name");
        let base = base::read(out, name).expect("measured");
        base.divergence.expect("beside a dense arm").mean
    };
    arms.iter().map(of).collect()
}

/// Bytes of all weights with `option` on every site.
fn uniform_bytes(table: &BitTable, option: &str) -> Bytes {
    let packed = table.measured.iter().filter(|one| one.option == option);
    let packed = packed.map(|one| one.bytes.expect("every site can have it"));
    Bytes(table.other_bytes + packed.sum::<u64>())
}

#[test]
fn one_weight_costs_what_a_comparison_measures() {
    let (_kept, rows) = golden_rows();
    let model = golden_path("llama/tiny-trained");
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("bits.json");
    let options = ["hqq:bits=3:group_size=32", "nf4", "none"];
    let resolved = config(&model, &rows, &[]);
    let chosen = choose_bits(
        &resolved,
        &asked(&path, &options, MUCH),
        &Unobserved,
        &StopFlag::new(),
    );
    // With memory for anything everything stays dense.
    let chosen = chosen.expect("a choice");
    assert_eq!(chosen.divergence, 0.0);
    assert!(chosen.sites.iter().all(|(_, option)| option == "none"));
    let table = BitTable::read(&path).expect("a table").expect("written");
    assert_eq!(table.sites.len(), 15, "seven of each layer, and the head");
    assert_eq!(table.other_sites, ["model.embed_tokens"]);
    assert_eq!(table.measured.len(), 30);

    for (number, site, option, rule) in [
        (
            0,
            "model.layers.0.self_attn.k_proj",
            options[0],
            json!({"bits": 3, "group_size": 32}),
        ),
        (1, "model.layers.1.mlp.down_proj", "nf4", json!({})),
        (
            2,
            "lm_head",
            options[0],
            json!({"bits": 3, "group_size": 32}),
        ),
    ] {
        let quantizer = option.split(':').next().expect("a name");
        let sites = json!([{"match": site, "quantizer": quantizer, "options": rule}]);
        let arm = json!({"name": "one", "sites": sites});
        let out = place.path().join(format!("compared-{number}"));
        let [compared] = divergences(&model, &rows, &[arm], &out)[..] else {
            panic!("one arm")
        };
        let found = table.found(site, option).expect("measured");
        let divergence = found.divergence.expect("finite");
        // A packed product adds in another order than a dense one.
        let off = (divergence - compared).abs() / compared;
        assert!(off < 1e-3, "{site} {option}: {divergence} {compared}");
        let base = base::read(&out, "one").expect("measured");
        let [weight] = base.weights.as_slice() else {
            panic!("one packed weight")
        };
        let off = (found.weight_error - weight.relative()).abs();
        assert!(off <= 1e-12 * found.weight_error, "{site}");
        // Segments are padded to 64 bytes in memory.
        let bytes = found.bytes.expect("packed");
        assert!(
            (weight.bytes..weight.bytes + 5 * 64).contains(&bytes),
            "{site}: {bytes}"
        );
    }
}

#[test]
fn a_stopped_measurement_goes_on_to_the_same_table() {
    let (_kept, rows) = golden_rows();
    let model = golden_path("llama/tiny-trained");
    let place = tempfile::tempdir().expect("a folder");
    let file = |name: &str| place.path().join(name);
    let two = ["hqq:bits=2", "nf4"];
    let one_thread = config(&model, &rows, &[("run.threads", json!(1))]);
    let at_once = asked(&file("at-once.json"), &two, MUCH);
    let (chosen, seen) = stopped_after(&one_thread, &at_once, u64::MAX);
    assert_eq!(seen, 30);
    let chosen = chosen.expect("a choice");

    let three_threads = config(&model, &rows, &[("run.threads", json!(3))]);
    let in_parts = asked(&file("in-parts.json"), &two, MUCH);
    let (stopped, seen) = stopped_after(&three_threads, &in_parts, 11);
    assert_eq!(seen, 11);
    let stopped = stopped.expect_err("stopped");
    assert_eq!(stopped.exit_code(), 143, "{stopped}");
    let partly = BitTable::read(&in_parts.table)
        .expect("a table")
        .expect("written");
    assert_eq!(partly.measured.len(), 11);
    let early = choice_of_table(&in_parts.table, MUCH).expect_err("not complete");
    assert!(early.to_string().contains("was stopped"), "{early}");
    let (went_on, seen) = stopped_after(&three_threads, &in_parts, u64::MAX);
    assert_eq!(seen, 19);
    assert_eq!(went_on.expect("a choice"), chosen);
    let read = |path: &Path| fs::read_to_string(path).expect("a table");
    assert_eq!(read(&at_once.table), read(&in_parts.table));

    // Another size, and fewer options, measure nothing; another option only itself.
    let table = BitTable::read(&at_once.table)
        .expect("a table")
        .expect("written");
    let memory = uniform_bytes(&table, "nf4");
    let (less, seen) = stopped_after(&one_thread, &asked(&at_once.table, &two, memory), 0);
    assert_eq!(seen, 0);
    let less = less.expect("a choice");
    assert!(less.bytes <= memory && less.divergence > 0.0);
    assert_eq!(
        choice_of_table(&at_once.table, memory).expect("a choice"),
        less
    );
    let other = asked(&at_once.table, &["int8"], MUCH);
    let (_, seen) = stopped_after(&one_thread, &other, u64::MAX);
    assert_eq!(seen, 15);
    let (again, seen) = stopped_after(&one_thread, &asked(&at_once.table, &two, memory), 0);
    assert_eq!((again.expect("a choice"), seen), (less, 0));

    // Other rows are another table.
    let one_row = Asked {
        tokens: 48,
        ..at_once
    };
    let (refused, seen) = stopped_after(&one_thread, &one_row, u64::MAX);
    let refused = refused.expect_err("other rows");
    assert!(
        refused
            .to_string()
            .contains("measured on something else: subject."),
        "{refused}"
    );
    assert_eq!((refused.exit_code(), seen), (2, 0));
}

#[test]
fn chosen_bits_are_closer_to_dense_than_uniform_ones_on_held_out_rows() {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/quickstart");
    let file = |name: &str| -> PathBuf { quickstart.join(name) };
    let (model, rows) = (file("model"), file("data/train.jsonl"));
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("bits.json");
    let resolved = config(&model, &rows, &[]);
    let choose = |memory| {
        let asked = asked(&path, &OPTIONS, memory);
        let chosen = choose_bits(&resolved, &asked, &Unobserved, &StopFlag::new());
        chosen.expect("a choice")
    };
    let rich = choose(MUCH);
    assert_eq!(rich.quantizers(), ["hqq"]);
    let table = BitTable::read(&path).expect("a table").expect("written");
    let out = place.path().join("compared");
    let keys = [
        ("compare.arms", json!(["hqq:bits=3", "hqq:bits=4"])),
        ("compare.bits", json!(path)),
        ("compare.eval_only", json!(true)),
        ("data.eval_files", json!([file("data/held-out.jsonl")])),
        ("run.out", json!(out)),
    ];
    let resolved = config(&model, &rows, &keys);
    let compared =
        espalier_compare::run(&resolved, Continue::Refuse, &Unobserved, &StopFlag::new());
    compared
        .expect("a comparison")
        .check_failures()
        .expect("no failure");
    let report = Report::of(&out).expect("a report");
    let divergence = |name: &str| {
        let arm = report.arms.iter().find(|arm| arm.name == name);
        arm.expect("an arm").divergence.expect("beside a dense arm")
    };
    for bits in [3, 4] {
        let memory = uniform_bytes(&table, &format!("hqq:bits={bits}"));
        let choice = choose(memory);
        assert!(choice.bytes <= memory);
        let names = [
            format!("hqq-bits={bits}-chosen"),
            format!("hqq-bits={bits}"),
        ];
        let [chosen, uniform] = names.each_ref().map(|name| divergence(name));
        // 0.0040 and 0.0081 at three bits, 0.0011 and 0.0017 at four.
        assert!(chosen < 0.8 * uniform, "chosen {chosen}, uniform {uniform}");
        // The sum over weights predicts the divergence of all together, on other rows.
        assert!(
            (choice.divergence / chosen - 1.0).abs() < 0.2,
            "{} {chosen}",
            choice.divergence
        );
        let pair = report.pairs.iter().find(|pair| pair.arms == names);
        let pair = pair.expect("compared");
        let difference = pair.divergence.as_ref().expect("decided");
        let found = difference.estimate;
        assert!((found - (chosen - uniform)).abs() < 1e-12, "{found}");
        let Interval([_, high]) = difference.together;
        assert!(pair.is_real && high < 0.0, "at most {high}");
        let [chosen, uniform] = &names;
        let words = format!("In the memory of {uniform}, {chosen} is closer to the dense base");
        let told = report.reading.sentences.iter();
        assert!(told.clone().any(|sentence| sentence.contains(&words)));
    }
}

#[test]
fn what_cannot_be_chosen_is_refused() {
    let (_kept, rows) = golden_rows();
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("bits.json");
    let dense = golden_path("llama/tiny-trained");
    let packed = golden_path("packed/nf4");
    let refused = |model: &Path, keys: &[(&str, Json)], options: &[&str], memory: Bytes| {
        let resolved = config(model, &rows, keys);
        let asked = asked(&path, options, memory);
        let chosen = choose_bits(&resolved, &asked, &Unobserved, &StopFlag::new());
        let error = chosen.expect_err("refused");
        assert!(!path.exists(), "{error}");
        (error.exit_code(), error.to_string())
    };
    let holds = |(code, message): (u8, String), words: &[&str]| {
        assert_eq!(code, 2, "{message}");
        for word in words {
            assert!(message.contains(word), "{message}");
        }
    };
    let much = |keys: &[(&str, Json)], options: &[&str]| refused(&dense, keys, options, MUCH);
    holds(
        refused(&packed, &[], &["nf4"], MUCH),
        &["packed already, by `nf4`"],
    );
    let least = refused(&dense, &[], &["nf4"], Bytes(1000));
    holds(
        least,
        &[
            "1000 bytes",
            "less than the smallest options need",
            "stay as they are",
        ],
    );
    holds(much(&[], &[]), &["expected 1 to 64 options, found 0"]);
    holds(much(&[], &["nf4", "nf4:block_size=64"]), &["are the same"]);
    holds(
        much(&[], &["lora"]),
        &["`lora` is of role adapter, expected a quantizer"],
    );
    holds(
        much(&[], &["hqq:3"]),
        &["option `hqq:3`: expected option=value"],
    );
    holds(much(&[], &["hqq:bits=9"]), &["bits"]);
    holds(
        much(&[("plugins", json!(["nf4"]))], &["nf4"]),
        &["--plugins names `nf4`"],
    );
    let sites = json!([{"match": "*.q_proj", "quantizer": "none"}]);
    holds(
        much(&[("sites", sites)], &["nf4"]),
        &["the config has some"],
    );
    holds(
        much(&[("model.init", json!("random"))], &["nf4"]),
        &["\"random\""],
    );
    let out = json!(place.path().join("out"));
    holds(
        much(&[("run.out", out)], &["nf4", "hqq"]),
        &["`nf4` and `hqq`"],
    );
    let (_, nowhere) = much(&[], &["hqq:group_size=5000"]);
    assert!(nowhere.contains("hqq:group_size=5000"), "{nowhere}");
}
