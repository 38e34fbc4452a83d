//! Part of the attack suite (`cargo xtask torture`), and tests that it detects known faults.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use espalier_samples::{Facility, lacks};
use espalier_torture::attacks::ENTRIES;
use espalier_torture::attacks::power_cuts::Recorded;
use espalier_torture::ended::{Ended, PATIENCE, carried};
use espalier_torture::power;
use espalier_torture::random::Random;
use espalier_torture::scenario::{Scenario, modes, named};
use espalier_torture::suite::{Asked, repeat, run};

/// Attacks, and the number of tries of each made here; the others have tests of their own.
const SHARE: [(&str, u64); 8] = [
    ("kills-at-moments", 2),
    ("disks", 3),
    ("swaps", 2),
    ("changed-inputs", 3),
    ("mutants-safetensors", 25),
    ("mutants-tokenizer", 25),
    ("mutants-jsonl", 25),
    ("mutants-parquet", 25),
];

#[test]
fn the_program_survives_a_share_of_the_attacks() {
    for (name, tries) in SHARE {
        let asked = Asked {
            minutes: 5.0,
            seed: 1,
            only: Some(name.into()),
            tries: Some(0..tries),
            at: None,
        };
        let rows = run(&ENTRIES, &asked, |_| ());
        let [row] = rows.as_slice() else {
            panic!("no attack is called {name}")
        };
        let failures = row.failures.iter().map(|failure| repeat(row, failure, 1));
        let failures: String = failures.collect();
        assert!(failures.is_empty(), "{failures}");
        match &row.left_out {
            Some(why) if name == "disks" => lacks(Facility::MountNamespaces, why),
            left_out => assert_eq!((row.tries, left_out), (tries, &None), "{name}"),
        }
    }
}

/// Places of the kills among the calls of a use, as shares of all.
const PLACES: [f64; 5] = [0.15, 0.35, 0.55, 0.75, 0.95];

#[test]
fn every_way_to_train_resumes_from_kills_to_the_same_bits() {
    for mode in modes() {
        let of = Scenario::new(mode);
        for (number, place) in PLACES.into_iter().enumerate() {
            let call = (of.calls.len() as f64 * place) as usize;
            let out = format!("killed-{number}");
            let case = format!("{}: killed at call {call}", mode.name);
            let ended = Ended::of(&mut of.faulty(&out, "", call, "kill"), PATIENCE);
            assert_eq!(ended.signal, Some(libc::SIGKILL), "{case}");
            // Killed once more where it goes on, unless so few calls are left.
            Ended::of(&mut of.faulty(&out, "--resume", call / 2, "kill"), PATIENCE);
            of.recovers(&out, &case);
        }
    }
}

/// Checks some of the prefixes of a record until one is neither old nor new.
fn found(recorded: &Recorded, mut prefixes: impl Iterator<Item = usize>) -> Option<String> {
    prefixes.find_map(|count| {
        let hold = || {
            recorded.check(count, &mut Random::of(1, "prefix", count as u64), |_, _| {
                true
            })
        };
        let problem = catch_unwind(AssertUnwindSafe(hold)).err()?;
        Some(problem.downcast_ref::<String>().expect("words").clone())
    })
}

#[test]
fn a_power_cut_finds_a_directory_that_is_not_synced_and_a_commit_before_the_last_file() {
    let merge = Recorded::new("merge", "");
    assert_eq!(found(&merge, (0..=merge.len()).step_by(6)), None);
    let run = Recorded::new("nf4-lora", "");
    let commit = run.behind("checkpoints/step-4");
    assert_eq!(found(&run, (commit - 4..commit + 3).step_by(3)), None);
    let planted = |name, plant, from: &str, more| {
        let recorded = Recorded::new(name, plant);
        let from = recorded.behind(from);
        found(&recorded, from..=from + more).expect("a planted bug")
    };
    let unsynced = planted("merge", "no-directory-sync", "out", 0);
    assert!(
        unsynced.contains("is not there") || unsynced.contains("in part"),
        "{unsynced}"
    );
    let unsynced = planted(
        "nf4-lora",
        "no-directory-sync",
        "checkpoints/step-4.partial",
        1,
    );
    assert!(
        unsynced.contains("promised was Some(") || unsynced.contains("it is missing"),
        "{unsynced}"
    );
    let early = planted("nf4-lora", "early-commit", "checkpoints/step-4", 1);
    assert!(early.contains("is damaged: checkpoint.json"), "{early}");
}

#[test]
fn the_record_of_changes_matches_strace() {
    if !Command::new("strace")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return lacks(Facility::Strace, "it is not installed");
    }
    for name in ["nf4-lora", "full", "merge", "quantize"] {
        let of = Scenario::new(named(name));
        let (folder, record, trace) = (of.path("recorded"), of.path("record"), of.path("trace"));
        fs::create_dir(&folder).expect("created");
        let mut command = of.faulty("recorded/out", "", 0, "eio");
        command
            .env("FAULT_PREFIX", &folder)
            .env("FAULT_RECORD", &record);
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-y",
            "-s",
            "0",
            "-e",
            &format!("trace={}", power::CALLS),
            "-e",
            "signal=none",
        ]);
        strace.args(["-qq", "-e", "abbrev=none", "-o"]).arg(&trace);
        Ended::of(&mut carried(&command, strace), PATIENCE).as_success(name);
        let changes = power::read(&fs::read(record).expect("a record"), &folder);
        let seen = power::traced(&fs::read_to_string(trace).expect("a trace"), &folder);
        let recorded = power::recorded(&changes);
        for (number, (seen, recorded)) in seen.iter().zip(&recorded).enumerate() {
            assert_eq!(seen, recorded, "{name}: call {number}");
        }
        assert_eq!(seen.len(), recorded.len(), "{name}");
    }
}
