//! Faults on the backend `late`: what a device reports late, numbers that are not finite, swaps
//! that are refused.

mod lately;
mod swapping;

use serde_json::Value as Json;

use lately::{ORDERS, add_library, named, on_late, try_run, with_sources};
use swapping::{Job, ask, plugin_folder};

const QLORA: [&str; 1] = ["plugins=\"nf4,lora\""];

// Launches that fail are in a step: those before are of `init`, and of the products that are timed,
// which are the more the faster the machine is, 120 at most.

/// What a device reports late names the op, and the host adds what it had given the device.
#[test]
fn a_launch_that_fails_late_is_reported_with_its_op_and_the_work_since_the_last_wait() {
    let job = Job::new(&QLORA);
    let folder = plugin_folder(&job, "late");
    for launch in [200, 240] {
        let mut run = on_late(&job, &folder, ORDERS[0]);
        run.keys.push(format!("backend.late.fail_launch={launch}"));
        let error = try_run(&run, &format!("failed-{launch}")).expect_err("a launch fails");
        let error = with_sources(&error);
        assert!(error.contains("launch of `"), "{error}");
        assert!(error.contains("as `fail_launch` asks"), "{error}");
        assert!(
            error.contains("since the last wait the device was given: forward of `"),
            "{error}"
        );
    }
}

/// As on CUDA, where any call may tell of earlier work.
#[test]
fn a_launch_that_fails_is_told_with_the_work_since_the_last_wait_by_whatever_call_reports_it() {
    let job = Job::new(&QLORA);
    let folder = plugin_folder(&job, "late");
    let mut told_by_launch = 0;
    for launch in [200, 210, 220, 230, 240] {
        let mut run = on_late(&job, &folder, ORDERS[2]);
        run.keys.extend([
            format!("backend.late.fail_launch={launch}"),
            "backend.late.tells=\"calls\"".to_owned(),
        ]);
        let error = try_run(&run, &format!("told-{launch}")).expect_err("a launch fails");
        let error = with_sources(&error);
        assert!(error.contains("as `fail_launch` asks"), "{error}");
        assert!(
            error.contains("since the last wait the device was given: "),
            "{error}"
        );
        told_by_launch += usize::from(error.contains("failed in launch"));
    }
    assert!(told_by_launch > 0, "every failure was told by a wait");
}

/// Every plan that a refused swap makes has its kernels prepared.
#[test]
fn a_refused_swap_leaves_no_kernel_behind() {
    let job = Job::new(&QLORA);
    let folder = plugin_folder(&job, "late");
    let mut run = on_late(&job, &folder, ORDERS[0]);
    let counts = job.path("counts.jsonl");
    run.keys.extend([
        format!("backend.late.leak_report={counts:?}"),
        "backend.late.report_every=1".to_owned(),
    ]);
    let another_rank = ask("adapter=lora", 3, &["adapter.lora.rank=2"]);
    let found = run.run("refused", &[another_rank]);
    assert_eq!(Job::swaps(&found), 0);
    let text = std::fs::read_to_string(&counts).expect("counts");
    let lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let kernels = |line: &Json| line["kernels"].as_u64().expect("a count");
    assert!(lines.iter().any(|line| kernels(line) > 0), "{text}");
    let ends: Vec<&Json> = lines.iter().filter(|line| line["at"] == "end").collect();
    assert!(
        !ends.is_empty() && ends.iter().all(|end| kernels(end) == 0),
        "{text}"
    );
}

/// The step is run forward again, op by op, and the first tensor that is not finite is named.
#[test]
fn a_number_that_is_not_finite_is_named_as_on_cpu_in_every_order() {
    let fsdp = ["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"];
    let ddp = ["plugins=\"lora,ddp\"", "run.ranks=2"];
    let collective = "run.device_collective=\"late-collective\"";
    for (keys, more) in [
        (&QLORA[..], None),
        (&fsdp, None),
        (&fsdp, Some(collective)),
        (&ddp, Some(collective)),
    ] {
        let mut job = Job::new(keys);
        job.keys.push("optim.learning_rate=1e30".to_owned());
        let folder = plugin_folder(&job, "late");
        add_library(&folder, "late-collective");
        let said = |job: &Job, out: &str| {
            let ended = try_run(job, out).expect_err("no loss is finite for long");
            (ended.exit_code(), with_sources(&ended))
        };
        let expected = said(&job, "cpu");
        assert_eq!(expected.0, 7, "{}", expected.1);
        for order in ORDERS {
            let mut run = on_late(&job, &folder, order);
            run.keys.extend(more.map(str::to_owned));
            let found = said(&run, &named("late", order));
            assert_eq!(found, expected, "{keys:?} {more:?} {order:?}");
        }
    }
}

/// The last launch of `first_not_finite` is one of the search for it. Where it fails, the number is
/// not blamed, and no rank waits for the one that failed.
#[test]
fn a_search_for_such_a_number_that_fails_ends_with_its_error_on_all_ranks() {
    for keys in [&QLORA[..], &["plugins=\"nf4,lora,fsdp\"", "run.ranks=2"]] {
        let mut job = Job::new(keys);
        job.keys.push("optim.learning_rate=1e30".to_owned());
        let folder = plugin_folder(&job, "late");
        let counts = job.path("counts.jsonl");
        let mut run = on_late(&job, &folder, ORDERS[0]);
        run.keys.extend([
            format!("backend.late.leak_report={counts:?}"),
            "backend.late.fail_op=\"first_not_finite\"".to_owned(),
        ]);
        let error = try_run(&run, "sound").expect_err("no loss is finite for long");
        assert_eq!(error.exit_code(), 7, "{}", with_sources(&error));
        let text = std::fs::read_to_string(&counts).expect("counts");
        let launches = text.lines().map(|line| {
            let line: Json = serde_json::from_str(line).expect("JSON");
            line["may_fail"].as_u64().expect("a count")
        });
        let last = launches.max().expect("a device");
        run.keys.push(format!("backend.late.fail_launch={last}"));
        let error = try_run(&run, "failed").expect_err("a launch fails");
        let words = with_sources(&error);
        assert!(words.contains("as `fail_launch` asks"), "{words}");
        assert_ne!(error.exit_code(), 7, "{words}");
    }
}
