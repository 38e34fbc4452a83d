//! The order of tasks on several lanes, on the host and on the device; tasks left out; failures.

use espalier_interface::schedule::{Act, Action};
use espalier_interface::{
    Buffer, BufferRange, Decoder, Kernel, KernelRequest, Kernels, Launch, Memory, MemoryKind,
    Prepared, Result as PluginResult, Streams,
};
use espalier_system::failure::UsageError;

use super::*;
use crate::Error;

/// A device that only writes down what streams are given.
#[derive(Default)]
struct Ledger(Mutex<Vec<String>>);

impl Ledger {
    fn note(&self, line: String) -> usize {
        let mut lines = self.0.lock().expect("no panic");
        lines.push(line);
        lines.len() - 1
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    fn lanes<'a>(&'a self, behind: &'a Behind) -> Lanes<'a> {
        Lanes {
            device: self,
            streams: &STREAMS,
            behind,
            since_wait: Box::leak(Box::default()),
        }
    }
}

const UNUSED: &str = "a walk only orders streams";

impl Memory for Ledger {
    fn alloc(&self, _: u64, _: MemoryKind) -> PluginResult<Buffer> {
        unreachable!("{UNUSED}")
    }
    fn free(&self, _: Buffer) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn upload(&self, _: &[u8], _: BufferRange, _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn download(&self, _: BufferRange, _: &mut [u8], _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn copy(&self, _: BufferRange, _: BufferRange, _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
}

impl Kernels for Ledger {
    fn prepare(&self, _: &KernelRequest, _: &[Option<Decoder>]) -> PluginResult<Prepared> {
        unreachable!("{UNUSED}")
    }
    fn launch(&self, _: &Launch<'_>) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn release(&self, _: Kernel) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
}

impl Streams for Ledger {
    fn stream(&self) -> PluginResult<Stream> {
        unreachable!("{UNUSED}")
    }
    fn record(&self, stream: Stream) -> PluginResult<Event> {
        Ok(Event(self.note(format!("record {}", stream.0)) as u64))
    }
    fn wait(&self, stream: Stream, event: Event) -> PluginResult<()> {
        let recorded = self.lines()[event.0 as usize].clone();
        self.note(format!("{} waits for {recorded}", stream.0));
        Ok(())
    }
    fn synchronize(&self, _: Stream) -> PluginResult<()> {
        unreachable!("{UNUSED}")
    }
    fn free_event(&self, event: Event) -> PluginResult<()> {
        self.note(format!("free {}", event.0));
        Ok(())
    }
}

const STREAMS: [Stream; 3] = [Stream(0), Stream(7), Stream(8)];

fn task(unit: usize, lane: usize, waits: &[usize]) -> Task {
    Task {
        action: Action::new(Act::Fetch, unit).on(lane as u32),
        lane: Lane(lane),
        waits: waits.to_vec(),
        regions: Vec::new(),
        begins: Vec::new(),
    }
}

/// Walks along `tasks` without those of `left_out`; what the device is given, each task included.
fn walked(tasks: &[Task], left_out: &[usize]) -> Vec<String> {
    walked_behind(&Behind::all(STREAMS.len()), tasks, left_out)
}

/// As [`walked`], where the lanes of `behind` have not waited for the compute stream.
fn walked_behind(behind: &Behind, tasks: &[Task], left_out: &[usize]) -> Vec<String> {
    let ledger = Ledger::default();
    let lanes = ledger.lanes(behind);
    let note = |task: &Task| {
        let stream = STREAMS[task.lane.0].0;
        ledger.note(format!("{stream} does {}", task.action.unit));
        Ok(())
    };
    let wanted = |index: usize, _: &Task| !left_out.contains(&index);
    let tasks = (tasks, &TaskWaits::default());
    walk(&lanes, tasks, &wanted, &mut |task| note(task), &note).expect("nothing fails");
    ledger.lines()
}

/// The waits of the compute stream where it catches up.
fn caught_up(behind: &Behind) -> Vec<String> {
    let ledger = Ledger::default();
    ledger.lanes(behind).catch_up().expect("nothing fails");
    waits(&ledger.lines())
}

/// The waits among `lines`, sorted.
fn waits(lines: &[String]) -> Vec<String> {
    let waits = lines.iter().filter(|line| line.contains("waits for"));
    let mut waits: Vec<String> = waits.cloned().collect();
    waits.sort();
    waits
}

fn position(lines: &[String], wanted: &str) -> usize {
    let found = lines.iter().position(|line| line == wanted);
    found.unwrap_or_else(|| panic!("no `{wanted}` among {lines:?}"))
}

#[test]
fn tasks_wait_for_those_of_other_lanes_on_the_host_and_on_the_device() {
    // 0 moves, 1 computes after it, 2 moves on another lane after 1, 3 computes after 0 and 2.
    let tasks = [
        task(0, 1, &[]),
        task(1, 0, &[0]),
        task(2, 2, &[1]),
        task(3, 0, &[0, 2]),
    ];
    for _ in 0..200 {
        let lines = walked(&tasks, &[]);
        let orders = [
            ["7 does 0", "record 7", "0 waits for record 7", "0 does 1"],
            ["0 does 1", "record 0", "8 waits for record 0", "8 does 2"],
            ["8 does 2", "record 8", "0 waits for record 8", "0 does 3"],
        ];
        for [done, record, wait, next] in orders {
            let from = position(&lines, done);
            let to = position(&lines, next);
            let between = &lines[from..to];
            assert!(
                position(between, record) < position(between, wait),
                "{lines:?}"
            );
        }
        let records = lines.iter().filter(|line| line.starts_with("record"));
        let freed = lines.iter().filter(|line| line.starts_with("free"));
        assert_eq!(records.count(), freed.count(), "{lines:?}");
    }
}

#[test]
fn a_walk_begins_behind_the_compute_stream_which_catches_up_with_it_once() {
    let behind = Behind::all(STREAMS.len());
    let lines = walked_behind(&behind, &[task(0, 1, &[]), task(1, 0, &[])], &[]);
    let begin = position(&lines, "7 waits for record 0");
    assert!(begin < position(&lines, "7 does 0"), "{lines:?}");
    assert_eq!(waits(&lines), ["7 waits for record 0"]);
    assert_eq!(caught_up(&behind), ["0 waits for record 7"]);
    assert_eq!(caught_up(&behind), [""; 0]);
}

/// The compute stream waits for what a lane was given by an earlier walk where no wait of the next
/// walk implies it in time.
#[test]
fn a_walk_catches_up_with_the_lanes_of_earlier_ones_that_its_waits_do_not_imply() {
    let moved = [task(0, 1, &[])];
    let after = |next: &[Task]| {
        let behind = Behind::all(STREAMS.len());
        walked_behind(&behind, &moved, &[]);
        walked_behind(&behind, next, &[])
    };
    let after_host_wait = |next: &[Task]| {
        let behind = Behind::all(STREAMS.len());
        walked_behind(&behind, &moved, &[]);
        behind.host_waited();
        walked_behind(&behind, next, &[])
    };
    // The first task that computes waits for the lane anyway.
    let lines = after(&[task(0, 1, &[]), task(1, 0, &[0])]);
    let waits = ["7 does 0", "record 7", "0 waits for record 7", "0 does 1"];
    assert_eq!(lines[..4], waits, "{lines:?}");
    // The second one would be too late.
    let second = [task(0, 1, &[]), task(1, 0, &[]), task(2, 0, &[0])];
    let computes_alone = [task(1, 0, &[])];
    for next in [&second[..], &computes_alone] {
        let lines = after(next);
        let wait = position(&lines, "0 waits for record 7");
        assert!(wait < position(&lines, "0 does 1"), "{lines:?}");
    }
    // A third lane may use the same bytes; that the host has waited for the compute stream says
    // nothing of lane 1.
    let third = [task(0, 1, &[]), task(1, 2, &[]), task(2, 0, &[0, 1])];
    for lines in [after(&third), after_host_wait(&third)] {
        let order = [
            "0 waits for record 7",
            "record 0",
            "8 waits for record 0",
            "8 does 1",
        ];
        let places = order.map(|line| position(&lines, line));
        assert!(places.is_sorted(), "{lines:?}");
    }
}

/// What a kept wait implies is not waited for again, in the same walk and in the next one.
#[test]
fn no_wait_is_made_that_another_one_implies() {
    // 1 waits for 0; 2 on a third lane waits for 1; 3 and 4 compute after 0, 1 and 2.
    let tasks = [
        task(0, 1, &[]),
        task(1, 2, &[0]),
        task(2, 0, &[0, 1]),
        task(3, 0, &[0, 1]),
        task(4, 1, &[3]),
    ];
    let behind = Behind::all(STREAMS.len());
    let lines = walked_behind(&behind, &tasks, &[]);
    let expected = [
        "0 waits for record 8",
        "7 waits for record 0",
        "7 waits for record 0",
        "8 waits for record 7",
    ];
    // One at the beginning for lane 1, which lane 2 waits for; three between tasks.
    assert_eq!(waits(&lines), expected);
    // Lane 1 ended behind all others, lane 2 did not.
    let next = walked_behind(&behind, &[task(0, 1, &[]), task(1, 2, &[])], &[]);
    assert_eq!(
        waits(&next),
        ["0 waits for record 7", "8 waits for record 0"]
    );
    // The host has waited for all.
    caught_up(&behind);
    behind.host_waited();
    let last = walked_behind(&behind, &[task(0, 1, &[]), task(1, 0, &[0])], &[]);
    assert_eq!(waits(&last), ["0 waits for record 7"]);
}

#[test]
fn a_walk_of_one_lane_orders_nothing() {
    assert_eq!(
        walked(&[task(0, 0, &[]), task(1, 0, &[])], &[]),
        ["0 does 0", "0 does 1"]
    );
}

#[test]
fn nobody_waits_for_a_task_that_is_left_out() {
    let tasks = [task(0, 1, &[]), task(1, 1, &[]), task(2, 0, &[0, 1])];
    let lines = walked(&tasks, &[1]);
    let between = &lines[position(&lines, "7 does 0")..position(&lines, "0 does 2")];
    position(between, "0 waits for record 7");
    let tasks = [task(0, 1, &[]), task(1, 1, &[]), task(2, 0, &[1])];
    let lines = walked(&tasks, &[1]);
    let before = &lines[..position(&lines, "0 does 2")];
    assert!(
        !before.contains(&"0 waits for record 7".to_owned()),
        "{lines:?}"
    );
    // Nothing is left to wait for.
    let lines = walked(&[task(0, 1, &[]), task(1, 0, &[0]), task(2, 1, &[])], &[0]);
    let before = &lines[..position(&lines, "0 does 1")];
    assert!(
        !before.contains(&"0 waits for record 7".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn a_failure_ends_all_lanes() {
    let tasks = [
        task(0, 1, &[]),
        task(1, 0, &[0]),
        task(2, 2, &[1]),
        task(3, 0, &[]),
    ];
    let fail = |_: &Task| {
        Err(Error::Usage(UsageError {
            message: "no bytes".to_owned(),
            next_step: String::new(),
        }))
    };
    let mut computed = 0;
    let mut compute = |_: &Task| {
        computed += 1;
        Ok(())
    };
    let ledger = Ledger::default();
    let behind = Behind::all(STREAMS.len());
    let lanes = ledger.lanes(&behind);
    let tasks = (&tasks[..], &TaskWaits::default());
    let error = walk(&lanes, tasks, &|_, _| true, &mut compute, &fail).expect_err("moves fail");
    assert_eq!(error.to_string(), "no bytes");
    assert_eq!(computed, 0);
    // What the moving lanes were given before is not known.
    assert_eq!(
        caught_up(&behind),
        ["0 waits for record 7", "0 waits for record 8"]
    );
}
