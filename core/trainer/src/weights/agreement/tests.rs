//! Differences between the processes of a run, by rank and key.

use super::*;

fn run(seed: u64, out: &str) -> Json {
    json!({
        "espalier": "0.1.0",
        "config": {"plugins": ["nf4", "lora"], "run": {"out": out, "seed": seed, "threads": seed}},
        "plugins": [{"component": "nf4", "version": "0.1.0", "sha256": null, "file": out}],
        "model": {"files": [{"file": "config.json", "sha256": "aa"}]},
        "data": {"files": [{"path": out, "sha256": "bb"}]},
        "instruction_set": "avx2",
    })
}

/// The result on process 0 of three when the processes run `runs`.
fn called(runs: &[Json; 3]) -> Result<(), String> {
    let world = World {
        processes: 3,
        ..World::threads(6)
    };
    let all = |_: &[u8]| {
        let sheets = runs
            .iter()
            .map(|run| serde_json::to_vec(&sheet(run, 4)).expect("data"));
        Ok(sheets.collect())
    };
    agree(&world, &runs[0], 4, all).map_err(|error| {
        assert_eq!(error.exit_code(), 6);
        error.to_string()
    })
}

#[test]
fn processes_can_differ_in_paths() {
    let mut shuffled = run(7, "/b");
    shuffled["config"]["plugins"] = json!(["lora", "nf4"]);
    shuffled["config"]["run"]["threads"] = json!(3);
    called(&[run(7, "/a"), shuffled, run(7, "/c")]).expect("they run the same");
}

#[test]
fn the_odd_process_is_reported_with_every_difference() {
    let mut other = run(9, "/a");
    other["plugins"][0]["version"] = json!("0.2.0");
    other["model"]["files"][0]["sha256"] = json!("ab");
    let expected = "ranks 0 to 1, step 4: it does not run what rank 2 runs: model file config.json is aa there, ab here; \
                    plugin nf4.version is \"0.1.0\" there, \"0.2.0\" here; run.seed is 7 there, 9 here";
    assert_eq!(
        called(&[other, run(7, "/a"), run(7, "/a")]),
        Err(expected.into())
    );
    let mut slower = run(7, "/a");
    slower["instruction_set"] = json!("baseline");
    let told = called(&[run(7, "/a"), slower, run(7, "/a")]).expect_err("another instruction set");
    assert!(
        told.contains("ranks 2 to 3") && told.contains("instruction set is"),
        "{told}"
    );
}
