//! An interrupted run resumes and ends like an uninterrupted one, or reports why it cannot.

use espalier_torture::training;

use std::fs;
use std::process::Command;

use serde_json::Value as Json;
use training::{Training, copy, files, messages, names, trained};

/// Params, gradients and state of bf16, the first rounded by random bits.
const TRUE_BF16: &str = "--set model.compute=bf16 --set model.params=bf16 --set \
                         model.gradients=bf16 --set optim.state=bf16 --set \
                         optim.stochastic_rounding=true --set optim.weight_decay=0.1";

#[test]
fn every_kind_of_run_resumes_to_the_same_bits() {
    for kind in [
        "--plugins lora --set adapter.lora.dropout=0.1 --set optim.schedule=cosine",
        "--plugins nf4,lora --set model.params=bf16 --set model.compute=bf16",
        "--plugins lora --set model.compute=f64",
        "--set optim.weight_decay=0.1",
        "--set model.params=bf16 --set model.init=random",
        TRUE_BF16,
        "--plugins nf4,lora --set model.init=random",
    ] {
        let training = Training::new(&format!("{kind} --set run.keep_last=2"));
        let uninterrupted = training.succeed("whole", "");
        let kept = training.path("whole/checkpoints");
        assert_eq!(names(&kept), ["step-4", "step-6"], "{kind}");
        for step in [4, 6] {
            let out = format!("from-{step}");
            training.unfinished("whole", &out);
            let more = format!("--resume=step-{step} --threads 2");
            let resumed = training.succeed(&out, &more);
            assert_eq!(resumed.metrics, uninterrupted.metrics, "{kind} from {step}");
            assert!(resumed.files == uninterrupted.files, "{kind} from {step}");
            // The final params and moments too.
            for file in ["params.safetensors", "optimizer.safetensors"] {
                let last = |out: &str| {
                    let path = training.path(out).join("checkpoints/step-6").join(file);
                    fs::read(path).expect("a file")
                };
                assert!(last("whole") == last(&out), "{kind} from {step}: {file}");
            }
            let run = fs::read(training.path(&out).join("run.json")).expect("a record");
            let run: Json = serde_json::from_slice(&run).expect("JSON");
            assert_eq!(
                run["resumptions"],
                serde_json::json!([{ "from_step": step }])
            );
        }
    }
}

#[test]
fn an_adapter_in_a_checkpoint_equals_that_of_a_shorter_run() {
    let training = Training::new("--plugins lora --set model.params=bf16");
    training.succeed("whole", "");
    training.succeed("short", "--set run.max_steps=4");
    let saved = files(&training.path("whole/checkpoints/step-4/adapter"));
    let mut exported = files(&training.path("short/adapter"));
    // Only the result of a run has the tokenizer beside it.
    exported.retain(|name, _| !name.starts_with("tokenizer"));
    assert!(saved == exported);
    let names: Vec<&String> = saved.keys().collect();
    assert_eq!(names, ["adapter_config.json", "adapter_model.safetensors"]);
}

#[test]
fn without_a_checkpoint_a_run_restarts_and_a_finished_run_is_unchanged() {
    let training = Training::new("--plugins lora");
    let started = training.succeed("new", "--resume");
    let before = files(&training.path("new"));
    assert_eq!(training.succeed("new", "--resume"), started);
    assert!(
        before == files(&training.path("new")),
        "a finished run was touched"
    );
    let line = training.refuse("new", "--resume --set run.seed=7", 2, "run.seed: 42 -> 7");
    assert!(line.contains("another --out"), "{line}");

    training.unfinished("new", "early");
    fs::remove_dir_all(training.path("early/checkpoints")).expect("removed");
    training.refuse("early", "", 2, "an unfinished run | with --resume");
    let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
    host.current_dir(training.folder.path());
    host.env("XDG_DATA_HOME", training.path("data"));
    let output = host.args(["train", "--resume", "early"]).output();
    let told = messages(&output.expect("the host starts"));
    let why = "has no checkpoint, the first comes after step 2 (run.save_every): starting over";
    assert!(told.contains(why), "{told}");
    assert_eq!(trained(&training.path("early")), started);
}

#[test]
fn only_options_that_change_no_result_can_change_and_others_are_refused_by_name() {
    let training = Training::new("--plugins lora --set run.max_steps=5");
    let whole = training.succeed("whole", "");
    let mut count = 0;
    let mut resumed = |more: &str| {
        count += 1;
        let out = format!("again-{count}");
        training.unfinished("whole", &out);
        // A run ends after its last step.
        (out, format!("--resume=step-4 {more}"))
    };
    for allowed in [
        "--threads 2",
        "--set run.save_every=3 --set run.keep_last=1",
        "--set run.plugin_dirs=[\"nowhere\"]",
        "--set model.recompute=layer",
    ] {
        let (out, more) = resumed(allowed);
        assert_eq!(training.succeed(&out, &more), whole, "{allowed}");
    }
    for (changed, words) in [
        ("--set run.seed=1", "run.seed: 42 -> 1"),
        ("--set run.eval_every=2", "run.eval_every: 3 -> 2"),
        ("--set data.micro_batch=2", "data.micro_batch: 1 -> 2"),
        ("--set adapter.lora.rank=4", "adapter.lora.rank: unset -> 4"),
        (
            "--set run.max_steps=4",
            "run.max_steps: 5 -> 4 | cannot become",
        ),
        (
            "--set run.seed=1 --set data.shuffle=false",
            "run.seed | data.shuffle: true -> false",
        ),
    ] {
        let (out, more) = resumed(changed);
        training.refuse(&out, &more, 2, words);
    }
    // A longer run: only if the completed steps would have been the same.
    let longer = training.succeed("longer", "--set run.max_steps=6");
    let (out, more) = resumed("--set run.max_steps=6");
    assert_eq!(training.succeed(&out, &more), longer);
}

#[test]
fn changed_files_are_refused_with_their_hashes() {
    let training = Training::new("--plugins lora");
    training.succeed("whole", "");
    training.unfinished("whole", "again");
    let rows = training.path("rows.jsonl");
    let text = fs::read_to_string(&rows).expect("rows");
    fs::write(&rows, text.replacen('5', "6", 1)).expect("written");
    training.refuse("again", "--resume", 4, "data file 1: | eval file 1: | -> ");
    fs::write(&rows, &text).expect("written");

    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama");
    training.refuse(
        "again",
        &format!("--resume --model {}", golden.join("tiny-trained").display()),
        4,
        "model file model.safetensors: ",
    );
    // Another path is not another file.
    copy(&golden.join("tiny"), &training.path("elsewhere"));
    fs::rename(&rows, training.path("moved.jsonl")).expect("moved");
    fs::copy(training.path("moved.jsonl"), &rows).expect("copied");
    let output = training.run("again", "--resume --model elsewhere");
    assert!(output.status.success(), "{}", training::last_line(&output));
    let weights =
        |out: &str| trained(&training.path(out)).files["adapter_model.safetensors"].clone();
    assert!(weights("again") == weights("whole"));
}
