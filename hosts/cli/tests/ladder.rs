//! `host plan --ladder`: the rungs of the published ladders, their arithmetic and their options.

mod planning;

use std::fs;
use std::sync::LazyLock;

use planning::{json, plan};
use serde_json::{Value as Json, json as tree};

const RECIPE: &str = "--ladder --preset llama3.2-3b --assume 80GiB";
const OPTIMIZERS: &str = "--ladder --preset llama2-7b --assume 80GiB";

/// Params of Llama 3.2 3B: a tied token table and 28 layers.
const TABLE: u64 = 128_256 * 3072;
const LINEARS: u64 = 2 * 3072 * 3072 + 2 * 3072 * 1024 + 3 * 3072 * 8192;
const LAYER: u64 = LINEARS + 2 * 3072;
const PARAMS: u64 = TABLE + 28 * LAYER + 3072;
/// Tokens of 2 x 4096.
const TOKENS: u64 = 8192;

/// The ladder of the recipe, and that of the optimizers.
static LADDERS: LazyLock<[Json; 2]> = LazyLock::new(|| [RECIPE, OPTIMIZERS].map(json));

fn rungs(ladder: &Json) -> &Vec<Json> {
    ladder["rungs"].as_array().expect("rungs")
}

fn rung<'a>(ladder: &'a Json, name: &str) -> &'a Json {
    let found = rungs(ladder).iter().find(|rung| rung["name"] == name);
    found.unwrap_or_else(|| panic!("no rung `{name}`: {ladder}"))
}

/// Bytes of a part of a rung.
fn part(ladder: &Json, name: &str, part: &str) -> u64 {
    let plan = &rung(ladder, name)["plan"];
    let parts = plan["parts"].as_array().expect("parts");
    let found = parts.iter().find(|one| one["name"] == part);
    found.expect("a part")["bytes"].as_u64().expect("bytes")
}

/// Checks that bytes are `expected` or at most a thousandth more: runs are padded to 4096 elements.
fn assert_near(found: u64, expected: f64, what: &str) {
    let ratio = found as f64 / expected;
    assert!(
        (1.0..=1.001).contains(&ratio),
        "{what}: {found}, expected {expected}"
    );
}

#[test]
fn each_step_of_the_recipe_is_the_arithmetic_by_hand() {
    let [ladder, _] = &*LADDERS;
    assert_eq!(ladder["num_params"], PARAMS);
    let of = |name: &str, of: &str| part(ladder, name, of);
    let params = PARAMS as f64;
    assert_near(of("short rows", "weights"), 2.0 * params, "weights in bf16");
    // One micro-batch a step: gradients lie where activations were, but for those of the first
    // layer, which are there until all others are made.
    let activations = of("short rows", "activations") as f64;
    assert_near(
        of("short rows", "gradients"),
        4.0 * params - activations * 27.0 / 28.0,
        "gradients in f32 beyond activations",
    );
    // Two micro-batches are summed.
    assert_near(
        of("packed rows", "gradients"),
        4.0 * params,
        "gradients in f32",
    );
    assert_near(
        of("short rows", "optimizer state"),
        8.0 * params,
        "two moments in f32",
    );
    // Packed: 16 times the tokens.
    let [short, packed] = ["short rows", "packed rows"].map(|name| of(name, "activations"));
    assert_eq!(packed, 16 * short);
    // In chunks: all logits, over which their gradients are written, in bf16, less what lies in the
    // working memory.
    let logits = of("packed rows", "logits");
    let all = 2 * TOKENS * 128_256;
    assert!(logits < all && logits > all * 8 / 10, "{logits} of {all}");
    assert_eq!(of("logits in chunks", "logits"), 0);
    // Recomputed: each layer keeps its input, in bf16.
    assert_eq!(of("recompute", "activations"), 28 * TOKENS * 3072 * 2);
    // In the backward pass: a layer's gradients, and the tied table's until the first layer.
    assert_eq!(of("in the backward pass", "gradients"), 0);
    let in_flight = 4 * (TABLE + LAYER);
    assert_near(
        of("in the backward pass", "in flight"),
        in_flight as f64,
        "in flight",
    );
    // Two codes, and two absmax of 4 bytes for each 256.
    let state = (2.0 + 8.0 / 256.0) * params;
    assert_near(
        of("adamw8bit", "optimizer state"),
        state,
        "codes and absmax",
    );
    // An adapter: the base is frozen, and 16 + 8 / 256 bytes less remain of each weight.
    let ends = 2 * (3072 + 3072) + 2 * (3072 + 1024) + 3 * (3072 + 8192);
    let trained = &rung(ladder, "an adapter")["plan"]["num_trained_params"];
    let lora = trained.as_u64().expect("a number");
    assert_eq!(lora % (28 * ends), 0, "a rank times all ends");
    let weights = 2.0 * (PARAMS + lora) as f64;
    assert_near(of("an adapter", "weights"), weights, "base and adapter");
    // Packed: 4 bits, a byte for 64 weights and 4 bytes for 256 of those.
    let nf4 = (28 * LINEARS) as f64 * (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0;
    let dense = (PARAMS - 28 * LINEARS + lora) as f64;
    assert_near(of("packed weights", "weights"), nf4 + 2.0 * dense, "nf4");
    for rung in rungs(ladder) {
        let plan = &rung["plan"];
        let parts = plan["parts"].as_array().expect("parts").iter();
        let sum: u64 = parts.filter_map(|part| part["bytes"].as_u64()).sum();
        assert_eq!(plan["step_peak_bytes"], sum, "{rung}");
    }
}

#[test]
fn the_optimizers_of_7b_are_the_arithmetic_by_hand() {
    let [_, ladder] = &*LADDERS;
    let params = 6_738_415_616_f64;
    let of = |name: &str, of: &str| part(ladder, name, of);
    for (name, weights, gradients, state) in [
        ("adamw, all in f32", 4.0, 4.0, 8.0),
        ("sgd, all in f32", 4.0, 4.0, 0.0),
        ("sgd, products in bf16", 4.0, 4.0, 0.0),
        ("sgd, params in bf16", 2.0, 4.0, 0.0),
        ("adamw, params in bf16", 2.0, 4.0, 8.0),
        ("adamw8bit", 2.0, 4.0, 2.0 + 8.0 / 256.0),
        ("adamw in the backward pass", 2.0, 0.0, 8.0),
        (
            "adamw8bit in the backward pass",
            2.0,
            0.0,
            2.0 + 8.0 / 256.0,
        ),
        ("sgd in the backward pass", 2.0, 0.0, 0.0),
    ] {
        assert_near(of(name, "weights"), weights * params, name);
        // Activations lie among gradients: of one micro-batch, and of an untied table.
        let shared = of(name, "activations") as f64;
        for (part, each, shared) in [
            ("gradients", gradients, shared),
            ("optimizer state", state, 0.0),
        ] {
            match each {
                0.0 => assert_eq!(of(name, part), 0, "{name}"),
                each => assert_near(of(name, part), each * params - shared, name),
            }
        }
    }
    // A layer's gradients: the largest unit.
    let layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096;
    let in_flight = of("sgd in the backward pass", "in flight");
    assert_near(in_flight, 4.0 * f64::from(layer), "in flight");
}

/// The published figures of what is stored in the same types here and there.
#[test]
fn the_peaks_are_the_published_ones_where_the_types_are() {
    for (ladder, names) in [
        (&LADDERS[0], &["an adapter", "packed weights"][..]),
        (
            &LADDERS[1],
            &[
                "adamw, all in f32",
                "sgd, all in f32",
                "sgd, products in bf16",
                "sgd in the backward pass",
            ],
        ),
    ] {
        for name in names {
            let rung = rung(ladder, name);
            let number = |value: &Json| value.as_f64().expect("a number");
            let published = &rung["published"];
            let theirs = number(&published["peak"]) * number(&published["unit_bytes"]);
            let ratio = number(&rung["plan"]["step_peak_bytes"]) / theirs;
            assert!((ratio - 1.0).abs() < 0.02, "{name}: {ratio}");
        }
    }
}

#[test]
fn each_rung_is_the_plan_of_its_options() {
    for (model, ladder) in [
        ("--preset llama3.2-3b --assume 80GiB", "--ladder"),
        (
            "--preset qwen2.5-0.5b --config configs/8b-24gb.toml --set quantizer.nf4.block_size=128",
            "--ladder=optimizers",
        ),
    ] {
        let ladder = json(&format!("{model} {ladder}"));
        for rung in rungs(&ladder) {
            let (options, plan) = (&rung["options"], &rung["plan"]);
            assert!(plan.is_object(), "{model}: {rung}");
            if rung["all_logits"] == true {
                continue;
            }
            let words = |list: &Json| -> Vec<String> {
                let list = list.as_array().expect("a list").iter();
                list.map(|word| word.as_str().expect("a word").to_owned())
                    .collect()
            };
            // `--plugins` is in place of the config's.
            let plugins = words(&options["plugins"]).join("\",\"");
            let plugins = match plugins.as_str() {
                "" => "plugins=[]".to_owned(),
                names => format!("plugins=[\"{names}\"]"),
            };
            let set = words(&options["set"]).join(" --set ");
            let alone = json(&format!("{model} --set {plugins} --set {set}"));
            for (category, bytes) in plan["memory"].as_object().expect("categories") {
                if category != "program" && category != "loading" {
                    assert_eq!(
                        bytes, &alone["memory"][category],
                        "{model}: {category}, {rung}"
                    );
                }
            }
            assert_eq!(plan["max_tokens"], alone["max_tokens"], "{rung}");
        }
    }
}

#[test]
fn published_peaks_are_shown_for_their_model_and_rows_only() {
    let has = |words: &str| {
        let ladder = json(&format!("{words} --assume 80GiB"));
        rungs(&ladder)
            .iter()
            .all(|rung| rung["published"].is_object())
    };
    for ladder in &*LADDERS {
        assert!(
            rungs(ladder)
                .iter()
                .all(|rung| rung["published"].is_object())
        );
    }
    for words in [
        "--ladder --preset llama3.2-1b",
        "--ladder=recipe --preset llama2-7b",
        "--ladder --preset llama3.2-3b --set data.max_seq_len=2048",
    ] {
        assert!(!has(words), "{words}");
    }
}

#[test]
fn rows_are_packed_as_the_user_packs_them_and_their_lengths_are_real() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = tree!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "initializer_range": 0.02, "eos_token_id": 1,
    });
    fs::write(folder.path().join("config.json"), config.to_string()).expect("a config");
    let row = |length: usize| tree!({"input_ids": vec![5; length]}).to_string();
    let rows: Vec<String> = [40, 50, 30, 20].map(row).into();
    let data = folder.path().join("rows.jsonl");
    fs::write(&data, rows.join("\n") + "\n").expect("rows");
    let words = format!(
        "--ladder --model {} --data {} --set data.batch_size=4 --set data.pack_tokens=150 --set model.init=random",
        folder.path().display(),
        data.display()
    );
    let ladder = json(&words);
    for name in ["packed rows", "packed weights"] {
        assert_eq!(rung(&ladder, name)["plan"]["max_tokens"], 140, "{ladder}");
    }
}

#[test]
fn a_rung_that_is_refused_says_why() {
    let words = "--ladder --preset llama3.2-1b --plugins fsdp \
                 --set sharding.fsdp.micro_batches_per_fetch=2 \
                 --assume 2x24GiB";
    let ladder = json(words);
    let refused = rung(&ladder, "in the backward pass");
    assert!(refused["plan"].is_null(), "{refused}");
    let reason = refused["refused"].as_str().expect("a reason");
    assert!(reason.contains("optim.in_backward"), "{reason}");
    let text = plan(words);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.contains("refused: ") && text.contains("each of 2 ranks"),
        "{text}"
    );
}

#[test]
fn text_shows_each_step_with_its_products_and_options() {
    let output = plan(RECIPE);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for part in [
        "model      preset llama3.2-3b, 3212749824 params",
        "3212749824 trained params x 8 bytes -> 3212749824 trained params x 2.032 bytes",
        "4 recompute, from 3: --set model.recompute=layer",
        "8 packed weights, from 7: --plugins nf4,lora",
        "2818572288 frozen params in nf4 x 4.127 bits",
        "3 logits in chunks, from 2: no option: every run has it",
        "8.5 GiB, 8.47 GiB",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn invalid_ladders_are_refused_with_a_remedy() {
    for (words, parts) in [
        (
            "--preset llama3-8b --ladder=recipes",
            ["`recipes`", "`recipe`"],
        ),
        ("--preset llama3-8b --ladder --auto", ["--ladder", "--auto"]),
        (
            "--preset llama3-8b --ladder --set optim.momentum=0.9",
            ["optim.momentum", "`adamw`"],
        ),
        ("--ladder", ["--model", "next"]),
    ] {
        let output = plan(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        for part in parts {
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
