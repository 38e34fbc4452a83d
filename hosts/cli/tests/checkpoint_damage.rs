//! A checkpoint with a changed byte, or with a file missing, cut or added: refused by name, never
//! loaded.

use espalier_torture::training;

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_trainer::checkpoint::{Checkpoints, ResumeFrom};
use training::{Training, copy, files, refused};

/// The files of a checkpoint.
const FILES: [&str; 6] = [
    "checkpoint.json",
    "params.safetensors",
    "optimizer.safetensors",
    "metrics.jsonl",
    "adapter/adapter_config.json",
    "adapter/adapter_model.safetensors",
];

/// A run whose last file is not yet written, with checkpoints of steps 2, 4 and 6.
fn training() -> Training {
    let training = Training::new("--plugins lora");
    training.succeed("whole", "");
    copy(&training.path("whole"), &training.path("out"));
    fs::remove_dir_all(training.path("out/adapter")).expect("removed");
    training
}

#[test]
fn every_damage_is_named_and_the_command_for_the_older_checkpoint_is_printed() {
    let training = training();
    let whole = training::trained(&training.path("whole"));
    let newest = training.path("out/checkpoints/step-6");
    let refuse = |file: &str, problem: &str| {
        let words = format!("step-6 is damaged: {file}: {problem} | continue from step 4");
        training.refuse("out", "--resume", 4, &words)
    };
    for file in FILES {
        let path = newest.join(file);
        let good = fs::read(&path).expect("a file");
        let flawed = |bytes: &[u8], problem: &str| {
            fs::write(&path, bytes).expect("written");
            refuse(file, problem);
        };
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        flawed(&flipped, "its ");
        for length in [0, 1, 8, good.len() - 1] {
            flawed(&good[..length], "it");
        }
        flawed(&[good.as_slice(), b"\n"].concat(), "it");
        fs::remove_file(&path).expect("removed");
        refuse(file, "it is missing");
        fs::create_dir(&path).expect("created");
        refuse(file, "it");
        fs::remove_dir(&path).expect("removed");
        fs::write(&path, &good).expect("written");
    }
    for junk in [
        "notes.txt",
        "adapter/README.md",
        "params.safetensors.partial",
    ] {
        fs::write(newest.join(junk), "").expect("written");
        refuse(junk, "it does not belong to the checkpoint");
        fs::remove_file(newest.join(junk)).expect("removed");
    }
    fs::create_dir(newest.join("empty")).expect("created");
    refuse("empty", "it does not belong");
    fs::remove_dir(newest.join("empty")).expect("removed");
    // Swap two files of the same length.
    let swap = |a: &Path, b: &Path| {
        let aside = training.path("aside");
        fs::rename(a, &aside).expect("moved");
        fs::rename(b, a).expect("moved");
        fs::rename(&aside, b).expect("moved");
    };
    let older = training.path("out/checkpoints/step-4");
    swap(
        &newest.join("params.safetensors"),
        &older.join("params.safetensors"),
    );
    // Step 4 is damaged too and is not offered.
    let words = "step-6 is damaged: params.safetensors: its sha256 | continue from step 2";
    training.refuse("out", "--resume", 4, words);
    swap(
        &newest.join("params.safetensors"),
        &older.join("params.safetensors"),
    );
    swap(&newest, &older);
    let words = "checkpoint.json: it was saved after step 4 | continue from step 2";
    training.refuse("out", "--resume", 4, words);
    swap(&newest, &older);

    fs::remove_file(newest.join("metrics.jsonl")).expect("removed");
    let line = refuse("metrics.jsonl", "it is missing");
    let command = line.split('`').nth(1).expect("a command");
    let mut shell = Command::new("sh");
    let output = shell
        .args(["-c", command])
        .current_dir(training.folder.path())
        .output();
    let output = output.expect("a shell");
    assert!(
        output.status.success(),
        "{command}: {}",
        training::last_line(&output)
    );
    assert_eq!(training::trained(&training.path("out")), whole);
}

#[test]
fn no_checkpoint_is_offered_if_all_are_damaged() {
    let training = training();
    for step in [2, 4, 6] {
        let file = training.path(&format!("out/checkpoints/step-{step}/params.safetensors"));
        fs::write(file, "").expect("written");
    }
    let words = "it has 0 bytes, expected | no older checkpoint is whole";
    training.refuse("out", "--resume", 4, words);
    let line = refused(
        &training.run("out", "--resume=step-5"),
        2,
        "it has step-2, step-4",
        "5",
    );
    assert!(line.contains("--resume alone"), "{line}");
    refused(
        &training.run("out", "--resume=latest"),
        2,
        "step-20",
        "latest",
    );
}

/// A thousand positions over all files, including every bit of some bytes.
#[test]
fn every_flipped_bit_is_detected() {
    let training = training();
    let (out, checkpoint) = (
        training.path("out"),
        training.path("out/checkpoints/step-6"),
    );
    let found = || Checkpoints::of(&out).choose(ResumeFrom::Newest);
    found().expect("whole").expect("a checkpoint");
    let mut flips = 0;
    for file in FILES {
        let path = checkpoint.join(file);
        let good = fs::read(&path).expect("a file");
        let stride = good.len() / 160 + 1;
        for (number, at) in (0..good.len()).step_by(stride).enumerate() {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << (number % 8);
            fs::write(&path, &flipped).expect("written");
            let error = found().expect_err("a flipped bit").to_string();
            assert!(
                error.contains(&format!("damaged: {file}: ")),
                "byte {at}: {error}"
            );
            flips += 1;
        }
        fs::write(&path, &good).expect("written");
    }
    assert!(flips > 700, "{flips}");
    found().expect("whole again").expect("a checkpoint");
    assert_eq!(files(&checkpoint).len(), 4);
}
