//! Plugins of third parties in the program: they train, resume, are evaluated, generate and are
//! merged.
#![cfg(feature = "embedded")]

use espalier_torture::training;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value as Json;
use training::{Trained, Training, last_line};

/// Runs in a folder with sample libraries in `plugins`.
struct Samples(Training);

impl Samples {
    fn new(plugins: &[&str]) -> Self {
        let training = Training::new("--plugin-dir plugins");
        let folder = training.path("plugins");
        fs::create_dir(&folder).expect("a folder");
        for plugin in plugins {
            let library = espalier_samples::library(plugin);
            let name = library.file_name().expect("a library is a file");
            fs::copy(&library, folder.join(name)).expect("a copy");
        }
        Samples(training)
    }

    /// Trains with `plugins` on one thread, on three, and in two parts, all to the same bits.
    fn trains(&self, plugins: &str) -> Trained {
        let more = format!("--plugins {plugins}");
        let whole = self.0.succeed("whole", &more);
        let loss = |line: &[Json]| line[1].as_f64().expect("a loss");
        let losses: Vec<f64> = whole
            .metrics
            .iter()
            .filter(|line| line[1].is_number())
            .map(|line| loss(line))
            .collect();
        assert_eq!(losses.len(), 6, "{plugins}");
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        let threads = self.0.succeed("threads", &format!("{more} --threads 3"));
        assert!(threads == whole, "{plugins}: other bits on three threads");
        // A run killed after its second checkpoint, as its directory shows.
        let out = self.0.path("parts");
        training::copy(&self.0.path("whole"), &out);
        for name in [
            "adapter",
            "checkpoints/step-6",
            "report.html",
            "report.json",
        ] {
            let path = out.join(name);
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
        let parts = self.0.succeed("parts", &format!("{more} --resume"));
        assert!(parts == whole, "{plugins}: other bits after --resume");
        whole
    }

    /// The standard output of `host` with these arguments.
    fn host(&self, words: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(self.0.folder.path());
        command.env("XDG_DATA_HOME", self.0.path("data"));
        command.args(words.split_whitespace());
        let output = command.output().expect("the host starts");
        assert!(output.status.success(), "{words}: {}", last_line(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The loss from `host eval`.
    fn loss(&self, words: &str) -> f64 {
        let text = self.host(&format!(
            "eval --json --data rows.jsonl --set model.compute=f32 {words}"
        ));
        let found: Json = serde_json::from_str(&text).expect("JSON");
        found["loss"].as_f64().expect("a loss")
    }
}

fn model() -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    tests.join("golden/llama/tiny").display().to_string()
}

#[test]
fn described_and_decoding_quantizers_train_resume_evaluate_and_generate() {
    for quantizer in ["linear4", "decode-only"] {
        let samples = Samples::new(&[quantizer]);
        samples.trains(&format!("{quantizer},lora"));
        let common = format!(
            "--model {} --plugin-dir plugins --plugins {quantizer} --adapter whole/adapter",
            model()
        );
        let loss = samples.loss(&common);
        assert!(loss.is_finite() && loss < 10.0, "{quantizer}: {loss}");
        let words = format!("generate {common} --max-tokens 8 --temperature 0 --prompt and");
        assert_eq!(samples.host(&words), samples.host(&words), "{quantizer}");
        // The adapter was trained on these decoded weights.
        let merged = format!("merge {common} --base decoded --out merged");
        samples.host(&merged);
        let found = samples.loss("--model merged");
        assert!(
            (found - loss).abs() < 1e-4,
            "{quantizer}: {found}, merged from {loss}"
        );
    }
}

#[test]
fn an_adapter_trains_resumes_and_is_merged() {
    let samples = Samples::new(&["scaled"]);
    let learned = samples.trains("scaled");
    assert!(learned.files.contains_key("adapter_config.json"));
    let common = format!(
        "--model {} --plugin-dir plugins --adapter whole/adapter",
        model()
    );
    let loss = samples.loss(&common);
    samples.host(&format!("generate {common} --max-tokens 8 --prompt and"));
    samples.host(&format!("merge {common} --out merged"));
    let found = samples.loss("--model merged");
    assert!((found - loss).abs() < 1e-5, "{found}, merged from {loss}");
}

#[test]
fn another_order_of_the_same_step_gives_the_same_bits() {
    let samples = Samples::new(&["two-pass"]);
    let ours = samples.0.succeed("single", "--plugins lora,single");
    let theirs = samples.trains("lora,two-pass");
    assert!(theirs == ours, "two-pass: other bits than single");
    let output = samples.0.run("ranks", "--plugins lora,two-pass --ranks 2");
    assert_eq!(output.status.code(), Some(2), "{}", last_line(&output));
}

/// A strategy that declares which of its options can be searched, and their effect on memory. The
/// search keeps weights on the device if they fit, and streams them otherwise.
#[test]
fn the_planner_searches_the_options_that_a_strategy_declares() {
    let samples = Samples::new(&["streamed"]);
    let plan = |device: &str| -> Json {
        let words = format!(
            "plan --auto --json --plugin-dir plugins --plugins nf4,lora,streamed --preset llama3.2-1b \
             --assume 1x{device} --host-memory 64GiB --set data.micro_batch=1 --set model.recompute=\"layer\""
        );
        serde_json::from_str(&samples.host(&words)).expect("JSON")
    };
    let large = plan("80GiB");
    assert_eq!(large["auto"]["tried"], 2, "{large}");
    assert_eq!(
        large["auto"]["chosen"]["choice"]["options"]["weights"],
        "device"
    );
    let needed = |step: &str| {
        let steps = large["auto"]["ladder"].as_array().expect("steps");
        let step = steps.iter().find(|one| one["step"] == step).expect(step);
        step["best"]["device"]["needed"].as_u64().expect("bytes")
    };
    let (whole, streamed) = (needed("recompute"), needed("offload"));
    assert!(
        streamed < whole,
        "{streamed}, {whole} with all weights on the device"
    );
    // A twentieth of a device is kept free.
    let between = (whole + streamed) / 2 * 20 / 19 / (1 << 20);
    let small = plan(&format!("{between}MiB"));
    let chosen = &small["auto"]["chosen"];
    assert_eq!(
        (&chosen["step"], &small["fits"]),
        (&"offload".into(), &true.into()),
        "{small}"
    );
    assert_eq!(chosen["choice"]["options"]["weights"], "host");
    let config = small["auto"]["config"].as_str().expect("lines");
    assert!(
        config.contains("[sharding.streamed]\nweights = \"host\""),
        "{config}"
    );
}
