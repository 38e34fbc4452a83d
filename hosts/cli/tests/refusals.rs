//! Refusals before a run starts -> no weight is read, and the output directory stays free.
#![cfg(target_os = "linux")]

mod calls;
mod place;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use calls::{header_end, read_end, watched};
use place::{Outcome, RunFolder, Weights, contents, copy_directory};

/// A command line in a folder with models, adapters and rows -> the exit code and the words of its
/// refusal. Words are separated by ` | `.
type Case = (&'static str, i32, &'static str);

/// The end of every training line of the table: two short steps on two rows, one of them held out.
const TRAIN: &str = "train --threads 1 --data rows.jsonl --set model.compute=f32 --set run.max_steps=2 \
                     --set run.epochs=2 --set data.eval_split=1";

/// Refusals of `train`; OUT is `out`.
const TRAINING: [Case; 20] = [
    (
        "--model missing --plugins lora",
        4,
        "has no tensor `lm_head.weight`",
    ),
    (
        "--model turned --plugins nf4,lora",
        4,
        "up_proj.weight` has shape [64, 176], expected [176, 64]",
    ),
    (
        "--model whole-numbers --plugins lora",
        4,
        "up_proj.weight` is I32; expected F32",
    ),
    (
        "--model whole-numbers --ranks 2 --plugins lora,fsdp",
        4,
        "up_proj.weight` is I32; expected F32",
    ),
    (
        "--model model --adapter stranger",
        4,
        "belongs to no site of this model",
    ),
    (
        "--model model --adapter narrow",
        4,
        "lora_A.weight` has shape [4, 64], expected [8, 64]",
    ),
    (
        "--model model --plugins nf4",
        2,
        "is to be packed and trained at once",
    ),
    (
        "--model model --plugins lora --data rows.jsonl gone.jsonl",
        3,
        "gone.jsonl",
    ),
    (
        "--model model --adapter lora --set adapter.lora.rank=16 --set adapter.lora.alpha=1",
        2,
        "lora/adapter_config.json | `adapter.lora.alpha` is 1 (--set adapter.lora.alpha) and 16 \
         | `adapter.lora.rank` is 16 (--set adapter.lora.rank) and 8",
    ),
    (
        "--model model --plugins nf4,lora --set adapter.lora.init=pissa",
        2,
        "adapter.lora.init lets adapter `lora` begin with a part of the weights | model.path | host split",
    ),
    (
        "--model model --adapter lora --set adapter.lora.init=loftq",
        2,
        "adapter.lora.init lets a new adapter | model.adapter is a saved one",
    ),
    (
        "--model model --adapter lora --set adapter.lora.targets=[\"q_proj\"]",
        2,
        "`adapter.lora.targets` is [\"q_proj\"]",
    ),
    (
        "--model model --plugins lora --set adapter.lora.targets=[\"upproj\"]",
        2,
        "target `upproj` matches no site, the nearest is `up_proj`",
    ),
    (
        "--model model --plugins nf4,lora --set sites=[{match=\"*.down_prj\",quantizer=\"none\"}]",
        2,
        "`sites.0.match`: \"*.down_prj\" (--set sites) matches no site | the nearest is \"*down_proj\" | `q_proj`",
    ),
    (
        "--model model --plugins nf4,lora --set sites=[{match=\"*\",quantizer=\"none\",options={block_size=64}}]",
        2,
        "`sites.0.options.block_size` | is of a quantizer, and `*` has none",
    ),
    (
        "--model model --plugins nf4,lora --set model.keep_f32=[\"*.norm\"]",
        2,
        "\"*.norm\" (--set model.keep_f32) matches no parameter | the nearest is \"*norm.weight\"",
    ),
    (
        "--model model --plugins nf4,lora --set model.compute=bf16 --set model.keep_f32=[\"*.down_proj.weight\"]",
        2,
        "matches only packed weights | by `nf4` | [[sites]]",
    ),
    (
        "--model model --set model.compute=bf16 --set model.params=bf16 --set model.keep_f32=[\"*norm*\"]",
        2,
        "matches only trained parameters | model.params",
    ),
    (
        "--model model --plugins hqq,lora --set quantizer.hqq.group_size=24",
        2,
        "`model.layers.0.self_attn.q_proj` cannot be packed by `hqq`",
    ),
    (
        "--model model --plugins lora --set compare.seeds=3",
        2,
        "`compare.seeds` (--set) changes nothing of `host train`",
    ),
];

/// Refusals of other commands, as complete lines.
const OTHERS: [Case; 16] = [
    (
        "eval --model missing --data rows.jsonl --plugins nf4",
        4,
        "has no tensor `lm_head.weight`",
    ),
    (
        "generate --model missing --prompt ab",
        4,
        "has no tensor `lm_head.weight`",
    ),
    (
        "generate --model model --ranks 2 --prompt ab",
        2,
        "sharding `single` serves one rank",
    ),
    (
        "merge --model model --adapter narrow --out out",
        4,
        "lora_A.weight` has shape [4, 64], expected [8, 64]",
    ),
    (
        "compare --model missing --plugins lora --arms nf4,hqq --data rows.jsonl --set data.eval_split=1 --out out",
        4,
        "has no tensor `lm_head.weight`",
    ),
    (
        "compare --model model --plugins lora --ranks 2 --arms nf4,hqq --data rows.jsonl \
         --set data.eval_split=1 --out out",
        2,
        "sharding `single` serves one rank",
    ),
    (
        "compare --model model --plugins lora --arms nf4,hqq --data rows.jsonl --set data.eval_split=1 --out out \
         --set model.keep_f32=[\"*.norm\"]",
        2,
        "arm `dense` | \"*.norm\" (--set model.keep_f32) matches no parameter",
    ),
    (
        "eval --model model --data rows.jsonl --out out",
        2,
        "unexpected argument '--out'",
    ),
    (
        "eval --model model --data rows.jsonl --set run.out=out",
        2,
        "`run.out` (--set) changes nothing of `host eval`",
    ),
    (
        "eval --model model --data rows.jsonl --adapter lora --set adapter.lora.alpha=1",
        2,
        "`adapter.lora.alpha` is 1",
    ),
    (
        "generate --model model --prompt ab --set data.max_seq_len=64",
        2,
        "`data.max_seq_len` (--set) changes nothing of `host generate`",
    ),
    (
        "generate --model model --prompt ab --top-p 0.9",
        2,
        "--top-p says which tokens are drawn from, and --temperature 0 draws none",
    ),
    (
        "quantize --model model --plugins nf4 --out out --set model.adapter=lora",
        2,
        "`model.adapter` (--set) changes nothing of `host quantize`",
    ),
    (
        "quantize --model model --plugins nf4,fsdp --out out",
        2,
        "`fsdp` is a sharding, which has no part in writing a model",
    ),
    (
        "merge --model model --adapter lora --out out --set optim.learning_rate=1",
        2,
        "`optim.learning_rate` (--set) changes nothing of `host merge`",
    ),
    (
        "plan --preset llama3-8b --plugins nf4,lora --data rows.jsonl --assume 24GiB",
        2,
        "'--data <FILE>...'",
    ),
];

#[test]
fn refusals_precede_the_first_weight_read_and_leave_the_directory_free() {
    let place = RunFolder::new();
    models(&place);
    for (line, code, words) in TRAINING {
        let line = format!("{TRAIN} --out out {line}");
        refused_unread(&place, (&line, code, words));
        assert!(!place.path("out").exists(), "{line}");
    }
    for case in OTHERS {
        refused_unread(&place, case);
        assert!(!place.path("out").exists(), "{}", case.0);
    }
    // An existing directory is kept with its files.
    fs::create_dir(place.path("out")).expect("created");
    place.write("out/notes.txt", "mine");
    let line = format!("{TRAIN} --out out {}", TRAINING[0].0);
    refused_unread(&place, (&line, TRAINING[0].1, TRAINING[0].2));
    assert_eq!(place.names("out"), "notes.txt");
    // Then training in the same directory succeeds.
    place.host(&line_of("model", "")).succeeded();
    assert!(place.path("out/adapter").is_dir());
}

#[test]
fn a_run_that_differs_from_its_checkpoint_is_refused_before_a_weight_is_read() {
    let place = RunFolder::new();
    models(&place);
    place
        .host(&line_of("model", "--set run.save_every=1"))
        .succeeded();
    let taken = contents(&place.path("out"));
    let again = line_of("model", "");
    refused_unread(&place, (&again, 2, "already holds a finished run"));
    fs::remove_dir_all(place.path("out/adapter")).expect("removed");
    let unfinished = contents(&place.path("out"));
    for (more, words) in [
        (
            "--set optim.clip_norm=0.5 --resume=step-1",
            "optim.clip_norm: 1.0 -> 0.5",
        ),
        (
            "--set adapter.lora.rank=4 --resume=step-1",
            "adapter.lora.rank: unset -> 4",
        ),
        ("--resume=step-7", "step-7"),
    ] {
        refused_unread(&place, (&line_of("model", more), 2, words));
        assert!(contents(&place.path("out")) == unfinished, "{more}");
    }
    place.host(&line_of("model", "--resume")).succeeded();
    let names = |files: &std::collections::BTreeMap<PathBuf, Vec<u8>>| {
        files.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&contents(&place.path("out"))), names(&taken));
}

#[test]
fn a_run_killed_while_it_loads_leaves_its_directory_to_the_next() {
    let place = RunFolder::new();
    models(&place);
    let mut command = place.command();
    let log = place.path("calls");
    let words = line_of("model", "");
    let words: Vec<&str> = words.split_whitespace().collect();
    let output = watched(command.args(&words), &place.path("model"), &log).output();
    assert!(output.expect("it starts").status.success());
    let calls = fs::read_to_string(&log).expect("the calls");
    let header = header_end(&place.path("model/model.safetensors"));
    let data = |line: &str| read_end(line).is_some_and(|end| end > header);
    let loading = calls.lines().position(data).expect("a weight is read");
    fs::remove_dir_all(place.path("out")).expect("removed");
    for call in [loading, loading + 3] {
        let mut command = place.command();
        watched(command.args(&words), &place.path("model"), &log)
            .env("FAULT_CALL", (call + 1).to_string())
            .env("FAULT_KIND", "kill");
        let killed = command.output().expect("it starts");
        assert_eq!(killed.status.signal(), Some(libc::SIGKILL), "{call}");
        assert_eq!(place.names("out"), "log.txt run.lock", "{call}");
    }
    place.host(&words.join(" ")).succeeded();
}

#[test]
fn options_equal_to_the_saved_adapter_pass_and_the_used_options_are_recorded() {
    let place = RunFolder::new();
    models(&place);
    let same = "--set adapter.lora.rank=8 --set adapter.lora.alpha=16.0 --set adapter.lora.targets=all-linear";
    let line = format!("{TRAIN} --out out --model model --adapter lora {same}");
    place.host(&line).succeeded();
    let run: Json = serde_json::from_str(&place.read("out/run.json")).expect("JSON");
    let used = &run["adapter_options"];
    assert_eq!((&used["rank"], &used["alpha"]), (&json!(8), &json!(16)));
    assert_eq!(used["targets"].as_array().map(Vec::len), Some(7));
    // Without a saved adapter: the requested options and the defaults.
    place
        .host(&format!(
            "{TRAIN} --out fresh --model model --plugins lora --set adapter.lora.rank=4"
        ))
        .succeeded();
    let run: Json = serde_json::from_str(&place.read("fresh/run.json")).expect("JSON");
    let used = &run["adapter_options"];
    assert_eq!((&used["rank"], &used["alpha"]), (&json!(4), &json!(32)));
    // The recorded options of a run do not apply to the adapter that it saved.
    place
        .host("generate --run fresh --prompt ab --max-tokens 2")
        .succeeded();
}

/// `model`, which is whole, others with wrong headers, and adapters that fit no model.
fn models(place: &RunFolder) {
    const UP: &str = "model.layers.1.mlp.up_proj.weight";
    type Damage = fn(&mut Weights);
    let cases: [(&str, Damage); 4] = [
        ("model", |_| {}),
        ("missing", |w| w.rename("lm_head.weight", "stray")),
        ("turned", |w| {
            w.header(|h| h[UP]["shape"] = json!([64, 176]))
        }),
        ("whole-numbers", |w| {
            w.header(|h| h[UP]["dtype"] = json!("I32"))
        }),
    ];
    for (name, damage) in cases {
        place.model(name);
        Weights::edit(&place.path(name).join("model.safetensors"), damage);
    }
    const A: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    let adapters: [(&str, Damage); 2] = [
        ("stranger", |w| w.rename(A, "base_model.model.other")),
        ("narrow", |w| {
            w.header(|h| {
                // Half as many rows and the same bytes: numbers twice as wide.
                h[A]["shape"] = json!([4, 64]);
                h[A]["dtype"] = json!("F64");
            })
        }),
    ];
    copy_directory("adapter_init", &place.path("lora"));
    for (name, damage) in adapters {
        copy_directory("adapter_init", &place.path(name));
        Weights::edit(&place.path(name).join("adapter_model.safetensors"), damage);
    }
}

/// A command line that trains `model` into `out`.
fn line_of(model: &str, more: &str) -> String {
    format!("{TRAIN} --out out --plugins lora --model {model} {more}")
}

/// Expects a command to be refused with no byte of a weight file read beyond its header.
fn refused_unread(place: &RunFolder, (line, code, words): (&str, i32, &str)) {
    let log = place.path("calls");
    let _ = fs::remove_file(&log);
    let mut command = place.command();
    watched(command.args(line.split_whitespace()), place.0.path(), &log);
    let outcome = Outcome::new(&command.output().expect("it starts"));
    outcome.refused(line, code, words);
    let calls = fs::read_to_string(&log).expect("the calls");
    let weights = |line: &&str| line.contains("model.safetensors") && !line.contains("/out/");
    for call in calls.lines().filter(weights) {
        assert!(!call.starts_with("read "), "{line}: {call}");
        if let Some(end) = read_end(call) {
            let path = call.split(' ').nth(1).expect("a path");
            let file = path.split('@').next().expect("a file");
            assert!(end <= header_end(Path::new(file)), "{line}: {call}");
        }
    }
}
