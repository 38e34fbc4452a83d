//! `host plan --preset --assume`: well-known models and the shipped configs, without weights or
//! devices.

mod planning;

use std::process::Command;

use planning::{json, plan};
use serde_json::Value as Json;

/// Parameters of the published checkpoints. Those of Llama 2 and of Llama 3 8B and 70B were looked
/// up. Those of Llama 2 exclude the buffers of rotary embeddings that its files still hold. The
/// others are computed from their known shapes.
const PUBLISHED: [(&str, u64); 20] = [
    ("llama2-7b", 6_738_415_616),
    ("llama2-13b", 13_015_864_320),
    ("llama2-70b", 68_976_648_192),
    ("llama3-8b", 8_030_261_248),
    ("llama3-70b", 70_553_706_496),
    ("llama3.1-405b", 405_853_388_800),
    ("llama3.2-1b", 1_235_814_400),
    ("llama3.2-3b", 3_212_749_824),
    ("tinyllama-1.1b", 1_100_048_384),
    ("mistral-7b", 7_248_023_552),
    ("qwen2.5-0.5b", 494_032_768),
    ("qwen2.5-7b", 7_615_616_512),
    ("qwen2.5-14b", 14_770_033_664),
    ("qwen3-8b", 8_190_735_360),
    ("gemma2-2b", 2_614_341_888),
    ("gemma2-9b", 9_241_705_984),
    ("gemma3-1b", 999_885_952),
    ("phi3-mini-4k", 3_821_079_552),
    ("phi4", 14_659_507_200),
    ("starcoder2-3b", 3_030_371_328),
];

fn bytes(plan: &Json, category: &str) -> f64 {
    plan["memory"][category].as_f64().expect("bytes")
}

/// Checks that a number is `expected` or at most a thousandth more: the ends of buffers are rounded
/// up.
fn assert_near(found: f64, expected: f64, what: &str) {
    let ratio = found / expected;
    assert!(
        (1.0..=1.001).contains(&ratio),
        "{what}: {found}, expected {expected}"
    );
}

#[test]
fn presets_have_the_params_of_the_published_checkpoints() {
    for (name, params) in PUBLISHED {
        let plan = json(&format!("--preset {name} --assume 2TiB --threads 1"));
        assert_eq!(plan["num_params"], params, "{name}");
    }
}

/// The bytes of a QLoRA plan, computed by hand. NF4 takes 4 bits, a byte for 64 weights and 4 bytes
/// for 256 of those. Tables and norms are bf16; the adapter, its gradients and two moments are f32.
/// A layer keeps its input, in bf16.
struct Hand {
    config: &'static str,
    machine: &'static str,
    packed: u64,
    dense: u64,
    adapter: u64,
    kept: u64,
}

#[test]
fn the_shipped_qlora_configs_fit_and_add_up() {
    let linears = |d: u64, f: u64, kv: u64| 2 * d * d + 2 * d * kv + 3 * d * f;
    let ends = |d: u64, f: u64, kv: u64| 2 * (d + d) + 2 * (d + kv) + 3 * (d + f);
    for hand in [
        Hand {
            config: "8b-24gb.toml --preset llama3-8b",
            machine: "--assume 24GiB --host-memory 32GiB",
            packed: 32 * linears(4096, 14336, 1024),
            dense: 2 * 128_256 * 4096 + 65 * 4096,
            adapter: 32 * 16 * ends(4096, 14336, 1024),
            kept: 32 * 4096 * 4096,
        },
        Hand {
            config: "70b-one-48gb.toml --preset llama2-70b",
            machine: "--assume 48GiB --host-memory 64GiB",
            packed: 80 * linears(8192, 28672, 1024),
            dense: 2 * 32_000 * 8192 + 161 * 8192,
            adapter: 80 * 16 * ends(8192, 28672, 1024),
            kept: 80 * 2048 * 8192,
        },
        Hand {
            config: "cpu-small.toml --preset llama3.2-1b",
            machine: "--host-memory 8GiB",
            packed: 16 * linears(2048, 8192, 512),
            dense: 128_256 * 2048 + 33 * 2048,
            adapter: 16 * 8 * ends(2048, 8192, 512),
            kept: 16 * 1024 * 2048,
        },
    ] {
        let words = format!(
            "--config configs/{} {} --threads 2",
            hand.config, hand.machine
        );
        let plan = json(&words);
        assert_eq!(plan["fits"], true, "{words}: {plan}");
        let nf4 = hand.packed as f64 * (4.0 + 8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0;
        let weights = nf4 + 2.0 * hand.dense as f64;
        assert_near(bytes(&plan, "weights"), weights, &words);
        for (category, each) in [("trainable", 4), ("gradients", 4), ("optimizer", 8)] {
            let expected = (each * hand.adapter) as f64;
            assert_near(bytes(&plan, category), expected, category);
        }
        let kept = 2.0 * hand.kept as f64;
        assert_near(bytes(&plan, "saved_activations"), kept, "saved activations");
        let categories = plan["memory"].as_object().expect("categories").iter();
        let categories = categories.filter(|(name, _)| *name != "loading");
        let sum: u64 = categories.filter_map(|(_, bytes)| bytes.as_u64()).sum();
        assert_eq!(plan["step_peak_bytes"], sum, "{words}");
    }
}

#[test]
fn the_shipped_full_config_fits_with_sixteen_bytes_a_weight() {
    let words = "--config configs/full-small.toml --preset qwen2.5-0.5b --assume 16GiB \
                 --host-memory 16GiB --threads 2";
    let plan = json(words);
    assert_eq!(plan["fits"], true, "{plan}");
    let state = ["trainable", "gradients", "optimizer"].map(|category| bytes(&plan, category));
    assert_near(state.iter().sum(), 16.0 * 494_032_768.0, "params and state");
}

/// Two codes an element and two absmax of 4 bytes for each 256. Biases and norms keep 8 bytes an
/// element, and runs are padded to 4096 elements.
#[test]
fn the_state_of_adamw8bit_is_a_quarter_of_adamws() {
    let words = "--config configs/full-small.toml --preset qwen2.5-0.5b --assume 16GiB \
                 --host-memory 16GiB --threads 2 --set optim.name=adamw8bit";
    let state = bytes(&json(words), "optimizer");
    let expected = (2.0 + 8.0 / 256.0) * 494_032_768.0;
    assert_near(state, expected, "codes and absmax");
}

#[test]
fn a_plan_of_70b_takes_little_memory() {
    let host = env!("CARGO_BIN_EXE_host");
    // 35 GB of packed weights are planned in an address space of 2 GiB.
    let line = format!(
        "ulimit -v 2097152 && exec {host} plan --plugins nf4,lora --preset llama2-70b --threads 1 \
         --assume 48GiB"
    );
    let output = Command::new("sh").args(["-c", &line]).output();
    let output = output.expect("a shell");
    let (text, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    // They do not fit, which is an answer, too.
    assert_eq!(output.status.code(), Some(8), "{error}");
    for part in [
        "model      preset llama2-70b",
        "memory on an assumed device of 48.00 GiB",
        "workspace of kernels as the cpu backend needs it",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn insufficient_memory_is_reported_for_the_device_and_for_the_host() {
    let of = |words: &str| json(&format!("--plugins nf4,lora --threads 1 {words}"));
    let words = "--preset llama3-8b --set model.recompute=layer";
    assert_eq!(of(&format!("{words} --assume 24GiB"))["fits"], true);
    assert_eq!(of(&format!("{words} --assume 5GiB"))["fits"], false);
    let host = of(&format!("{words} --assume 24GiB --host-memory 64MiB"));
    assert_eq!(host["fits"], false, "{host}");
    // Without an assumption, the device of the backend.
    let device = |bytes: u64| of(&format!("{words} --set backend.null.memory={bytes}"));
    assert_eq!(device(24 << 30)["fits"], true);
    assert_eq!(device(5 << 30)["fits"], false);
}

#[test]
fn a_plan_that_does_not_fit_ends_with_what_would() {
    let of = |machine: &str| {
        let words = format!("--plugins nf4,lora --preset llama3-8b --threads 1 {machine}");
        let output = plan(&words);
        let [text, error] = [&output.stdout, &output.stderr].map(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            text.into_owned()
        });
        assert_eq!(output.status.code(), Some(8), "{words}: {error}");
        (text, error.lines().last().unwrap_or_default().to_owned())
    };
    let (text, error) = of("--assume 10GiB --host-memory 64GiB");
    let (own, instead) = text.split_once("what would fit").expect("two parts");
    assert!(own.contains("does not fit"), "{own}");
    assert!(instead.contains("offload = \"params\""), "{instead}");
    for part in [
        "error: the run does not fit: a device needs",
        "10.00 GiB are there; next: with the keys above it fits",
        "fsdp, offload params, prefetch 2; recompute selective, micro_batch 1",
    ] {
        assert!(error.contains(part), "{error}");
    }
    // The plan of those keys does fit.
    let keys = "--set sharding.fsdp.offload=\"params\" --set sharding.fsdp.prefetch=2 \
                --set model.recompute=selective --set data.micro_batch=1";
    let words = format!(
        "--plugins nf4,lora,fsdp --preset llama3-8b --threads 1 --assume 10GiB \
         --host-memory 64GiB {keys}"
    );
    assert_eq!(json(&words)["fits"], true);

    let (_, error) = of("--assume 1GiB --host-memory 1GiB");
    assert!(
        error.contains("; next: nothing fits; of what comes nearest"),
        "{error}"
    );
}

#[test]
fn invalid_arguments_are_refused_with_a_remedy() {
    for (words, parts) in [
        ("--preset llama3-8", ["`llama3-8`", "--preset llama3-8b"]),
        (
            "--preset llama3-8b --model x",
            ["--model", "cannot be used with"],
        ),
        (
            "--preset llama3-8b --assume 24GiB --link-gbs 0",
            ["--link-gbs", "a number above 0"],
        ),
        (
            "--preset llama3-8b --assume 24GB",
            ["24GB", "a size such as 24GiB"],
        ),
        ("", ["--model", "next"]),
    ] {
        let output = plan(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        for part in parts {
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
