//! Many runs for one output directory: one trains, and the lock of a dead run blocks no other.

use espalier_torture::training;

use std::process::Stdio;

use training::{Training, last_line, names, refused, trained};

#[test]
fn exactly_one_of_many_simultaneous_runs_trains() {
    let training = Training::new("--plugins lora");
    let whole = training.succeed("whole", "");
    let start = |_| {
        let mut run = training.command("out", "");
        let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        run.expect("the host starts")
    };
    let runs: Vec<_> = (0..12).map(start).collect();
    let mut winners = 0;
    for run in runs {
        let output = run.wait_with_output().expect("it was started here");
        if output.status.success() {
            winners += 1;
            continue;
        }
        let line = refused(&output, 2, "the output", "a second run");
        let taken = line.contains("is in use by process") || line.contains("already holds");
        assert!(taken, "{line}");
    }
    assert_eq!(winners, 1);
    assert!(trained(&training.path("out")) == whole);
    assert_eq!(names(&training.path("out")), names(&training.path("whole")));
}

#[test]
fn the_lock_of_a_killed_run_blocks_no_other_run() {
    let training = Training::new("--plugins lora");
    let whole = training.succeed("whole", "");
    let endless = "--set run.epochs=100000 --set run.save_every=100000 --set run.eval_every=100000";
    let mut run = training.command("out", endless);
    let mut run = run.stderr(Stdio::null()).spawn().expect("the host starts");
    // A run without a metrics line has not started, and leaves the directory free.
    let started = || {
        let lines = std::fs::read_to_string(training.path("out/metrics.jsonl"));
        lines.is_ok_and(|lines| lines.contains('\n'))
    };
    while !started() {
        let ended = run.try_wait().expect("it was started here");
        assert!(ended.is_none(), "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    run.kill().expect("it was started here");
    run.wait().expect("it was started here");
    assert!(
        training.path("out/run.lock").exists(),
        "it had no time to remove it"
    );
    let output = training.run("out", "");
    refused(
        &output,
        2,
        "already holds an unfinished run",
        "after a kill",
    );
    let resumed = training.run("out", "--resume");
    assert!(resumed.status.success(), "{}", last_line(&resumed));
    assert!(trained(&training.path("out")) == whole);
}
