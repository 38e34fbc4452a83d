//! Faults that are injected, faults of the host that the device tells, and the lines of counts.

use std::time::{Duration, Instant};

use espalier_interface::{
    BufferRange, DType, Device, ErrorCode, KernelRequest, Launch, MemoryKind, Operand,
};
use serde_json::{Value as Json, json};

use super::{BYTES, COMPUTE, alloc, copy, device, in_order, launch, ones, upload, value, whole};

/// Copies on a second stream what the compute stream has uploaded, in right order.
fn copied(device: &dyn Device) -> u8 {
    let side = device.stream().expect("a stream");
    let [from, to] = [(); 2].map(|()| alloc(device, MemoryKind::DEVICE));
    for content in [1, 2] {
        upload(device, content, from, COMPUTE);
        let uploaded = device.record(COMPUTE).expect("an event");
        device.wait(side, uploaded).expect("a wait");
    }
    copy(device, from, to, side);
    value(device, to, side)
}

#[test]
fn a_wait_or_record_that_is_dropped_changes_results() {
    assert_eq!(copied(&*in_order("late")), 2);
    for option in ["drop_wait", "drop_record"] {
        let dropped = |number: u64| {
            copied(&*device(&[
                (option, json!(number)),
                ("races", json!("count")),
            ]))
        };
        assert_eq!([1, 2, 3].map(dropped), [2, 1, 2], "{option}");
    }
}

#[test]
fn a_buffer_that_is_freed_while_a_task_uses_it_is_an_error_of_the_next_wait() {
    let device = in_order("late");
    let [from, to] = [(); 2].map(|()| alloc(&*device, MemoryKind::DEVICE));
    copy(&*device, from, to, COMPUTE);
    let expected = format!(
        "buffer {} was freed while 1 queued tasks use it: expected a wait for them before",
        from.0
    );
    let error = device.free(from).expect_err("a queued copy reads it");
    assert_eq!(error.message, expected);
    let error = device.synchronize(COMPUTE).expect_err("told once more");
    assert_eq!((error.code, error.message), (ErrorCode::DEVICE, expected));
    assert_eq!(value(&*device, to, COMPUTE), 0xFF, "the copy read poison");
}

#[test]
fn a_launch_that_fails_is_told_by_the_next_wait_with_its_op() {
    let device = in_order("late");
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    let kernel = ones(&*device, 1000);
    launch(&*device, kernel, buffer, COMPUTE);
    let error = device.synchronize(COMPUTE).expect_err("64 bytes for 4000");
    assert!(error.message.starts_with("launch of `init`: "), "{error}");
    device.synchronize(COMPUTE).expect("a failure is told once");
}

#[test]
fn a_launch_fails_where_the_option_says_so_and_the_next_wait_names_its_op() {
    let device = device(&[("fail_launch", json!(2))]);
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    let kernel = ones(&*device, 16);
    launch(&*device, kernel, buffer, COMPUTE);
    device.synchronize(COMPUTE).expect("the first one runs");
    launch(&*device, kernel, buffer, COMPUTE);
    let event = device.record(COMPUTE).expect("an event");
    assert!(
        device.query(event).expect("an event"),
        "a query reports nothing"
    );
    let error = device
        .synchronize(COMPUTE)
        .expect_err("the second one fails");
    assert_eq!(
        (error.code, error.message.as_str()),
        (
            ErrorCode::DEVICE,
            "launch of `init`: it failed as `fail_launch` asks"
        )
    );
}

#[test]
fn the_launches_of_one_op_are_counted_where_an_option_says_so() {
    for (op, fails) in [("init", true), ("add", false)] {
        let device = device(&[("fail_launch", json!(1)), ("fail_op", json!(op))]);
        let buffer = alloc(&*device, MemoryKind::DEVICE);
        launch(&*device, ones(&*device, 16), buffer, COMPUTE);
        assert_eq!(device.synchronize(COMPUTE).is_err(), fails, "{op}");
    }
}

/// Without a wait that is dropped, the device reports the race, whatever the order.
#[test]
fn a_wait_or_record_that_is_dropped_is_a_race() {
    for (option, number) in [("drop_wait", 2), ("drop_record", 2)] {
        for order in ["late", "early", "mixed"] {
            let device = device(&[(option, json!(number)), ("order", json!(order))]);
            let side = device.stream().expect("a stream");
            let [from, to] = [(); 2].map(|()| alloc(&*device, MemoryKind::DEVICE));
            for _ in 0..2 {
                upload(&*device, 1, from, COMPUTE);
                let uploaded = device.record(COMPUTE).expect("an event");
                device.wait(side, uploaded).expect("a wait");
            }
            copy(&*device, from, to, side);
            let error = device.synchronize(side).expect_err("a race");
            assert!(
                error
                    .message
                    .contains("upload (task 2 of stream 0) and copy (task 1 of stream 1)"),
                "{option}, {order}: {error}"
            );
        }
    }
}

#[test]
fn calls_that_cannot_be_put_on_a_stream_are_refused_at_once() {
    let device = in_order("late");
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    let mut beyond = whole(buffer);
    beyond.offset = 1;
    let mut bytes = [0; BYTES as usize];
    assert!(device.upload(&bytes, beyond, COMPUTE).is_err());
    assert!(device.download(beyond, &mut bytes, COMPUTE).is_err());
    assert!(device.copy(beyond, whole(buffer), COMPUTE).is_err());
    assert!(device.upload(&bytes[1..], whole(buffer), COMPUTE).is_err());
    let kernel = ones(&*device, 16);
    let call = |kernel, ranges: &[_]| {
        device.launch(&Launch {
            kernel,
            stream: COMPUTE,
            ranges,
            workspace: whole(buffer),
            tokens: 0,
            sequences: 0,
            scalars: &[0.0; 3],
        })
    };
    assert!(call(kernel, &[beyond]).is_err());
    let unknown = espalier_interface::Kernel(kernel.0 + 1);
    assert!(call(unknown, &[whole(buffer)]).is_err());
    assert!(call(kernel, &[whole(buffer)]).is_ok());
}

#[test]
fn a_download_takes_its_time() {
    let device = device(&[("download_secs", json!(0.2))]);
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    let begin = Instant::now();
    device.synchronize(COMPUTE).expect("nothing to do");
    let synchronized = begin.elapsed();
    value(&*device, buffer, COMPUTE);
    let took = begin.elapsed();
    assert!(
        synchronized < Duration::from_millis(200),
        "{synchronized:?}"
    );
    assert!(took >= Duration::from_millis(200), "{took:?}");
}

#[test]
fn counts_are_written_every_few_host_waits_and_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("counts.jsonl");
    let device = device(&[("leak_report", json!(path)), ("report_every", json!(2))]);
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    ones(&*device, 16);
    let side = device.stream().expect("a stream");
    for _ in 0..3 {
        let event = device.record(side).expect("an event");
        device.wait(COMPUTE, event).expect("a wait");
        device.synchronize(COMPUTE).expect("nothing fails");
    }
    device.free(buffer).expect("not in use");
    drop(device);
    let text = std::fs::read_to_string(path).expect("lines");
    let lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let numbers = |line: &Json| {
        let names = [
            "events",
            "kernels",
            "buffers",
            "streams",
            "records",
            "waits",
            "host_waits",
        ];
        names.map(|name| line[name].as_u64().expect("a number"))
    };
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0]["at"], "host wait");
    assert_eq!(numbers(&lines[0]), [2, 1, 1, 2, 2, 2, 2]);
    assert_eq!(lines[1]["at"], "end");
    assert_eq!(numbers(&lines[1]), [3, 1, 0, 2, 3, 3, 3]);
}

#[test]
fn a_backend_has_as_many_devices_as_asked_and_refuses_others() {
    let changes = [("devices", json!(3))];
    let backend = crate::backend::LateBackend::new(
        &super::options(&changes),
        std::sync::Arc::new(espalier_interface::Serial),
    );
    let backend = backend.expect("valid options");
    let devices = espalier_interface::Backend::devices(&backend).expect("devices");
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["late:0", "late:1", "late:2"]);
    assert!(devices.iter().all(|device| !device.shares_host_memory));
    assert!(espalier_interface::Backend::open(&backend, 2).is_ok());
    let refused = espalier_interface::Backend::open(&backend, 3).err();
    let message = refused.expect("there are three").message;
    assert_eq!(message, "device 3 of backend `late`: it has devices 0 to 2");
}

#[test]
fn a_kernel_that_is_released_behind_its_launch_still_runs() {
    let device = in_order("late");
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    let kernel = ones(&*device, BYTES / 4);
    launch(&*device, kernel, buffer, COMPUTE);
    device.release(kernel).expect("it was prepared");
    let mut bytes = [0; BYTES as usize];
    let done = device.download(whole(buffer), &mut bytes, COMPUTE);
    done.expect("the launch ran");
    assert_eq!(bytes[..4], 1f32.to_le_bytes());
    device.release(kernel).expect_err("it is released once");
}

#[test]
fn any_call_on_a_stream_tells_of_a_failure_where_the_option_says_so() {
    let device = device(&[("fail_launch", json!(1)), ("tells", json!("calls"))]);
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    launch(&*device, ones(&*device, 16), buffer, COMPUTE);
    let event = device.record(COMPUTE).expect("nothing has run");
    assert!(device.query(event).expect("nothing had failed before"));
    let told = device.record(COMPUTE).expect_err("the launch has failed");
    assert_eq!(told.code, ErrorCode::DEVICE);
    device.record(COMPUTE).expect("a failure is told once");
}

#[test]
fn a_slow_launch_holds_its_stream_back_and_no_call_but_one_that_waits() {
    let device = device(&[("slow_launch", json!(2)), ("launch_secs", json!(0.2))]);
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    let kernel = ones(&*device, BYTES / 4);
    launch(&*device, kernel, buffer, COMPUTE);
    device.synchronize(COMPUTE).expect("the first one runs");
    let begun = Instant::now();
    launch(&*device, kernel, buffer, COMPUTE);
    let event = device.record(COMPUTE).expect("an event");
    assert!(!device.query(event).expect("an event"), "it waits");
    device.synchronize(COMPUTE).expect("it ends");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(device.query(event).expect("an event"));
}

#[test]
fn a_cast_of_a_flat_run_wants_and_writes_the_workspace_that_the_option_says() {
    let device = device(&[("cast_workspace", json!(BYTES))]);
    let request = KernelRequest::new("cast")
        .inputs(vec![Operand::flat(16, DType::F32)])
        .outputs(vec![Operand::flat(16, DType::BF16)]);
    let prepared = device.prepare(&request, &[]).expect("a known op");
    assert_eq!(prepared.workspace_bytes, BYTES);
    let [from, to, workspace] = [(); 3].map(|()| alloc(&*device, MemoryKind::DEVICE));
    let half = BufferRange {
        bytes: BYTES / 2,
        ..whole(to)
    };
    let launch = |stream, bytes| {
        device.launch(&Launch {
            kernel: prepared.kernel,
            stream,
            ranges: &[whole(from), half],
            workspace: BufferRange {
                bytes,
                ..whole(workspace)
            },
            tokens: 0,
            sequences: 0,
            scalars: &[],
        })
    };
    let short = launch(COMPUTE, BYTES - 1).expect_err("a byte is missing");
    assert!(short.message.contains("expected 64 bytes of workspace"));
    launch(COMPUTE, BYTES).expect("a valid launch");
    let side = device.stream().expect("a stream");
    upload(&*device, 1, workspace, side);
    let race = device
        .synchronize(side)
        .expect_err("nothing orders the two");
    assert!(race.message.contains("launch of `cast`"), "{race}");
}
