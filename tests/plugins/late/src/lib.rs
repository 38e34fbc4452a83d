//! The backend `late`: a device in the likeness of a GPU, on this machine's processors.
//!
//! Kernels are those of the backend `cpu`, so a program that orders its work rightly gets the bits
//! of `cpu`. Everything else is as on a graphics card:
//!
//! - A stream is a queue. `launch`, `copy` and `upload` only put a task on it. A task reads its
//!   operands when it runs. Nothing orders two streams but events.
//! - Other libraries may put tasks on its streams, and name its memory, natively (`late-native`).
//! - When tasks run is an option ([`order::Order`]), so that a missing wait shows as wrong results.
//! - The host cannot touch device memory: its pages are closed except while a task runs.
//! - `upload` takes the host's bytes at the call, as CUDA does with pageable memory. A copy from or
//!   to pinned or lent memory touches it when the copy runs.
//!
//! - Tasks that use the same bytes although no stream, event or wait of the host orders them are a
//!   failure, in whatever order they run ([`races`]).
//!
//! Other options inject faults (a wait or an event that is ignored, a launch that fails) and report
//! what is alive.

mod backend;
mod clock;
mod counts;
mod device;
mod follower;
mod memory;
mod native;
mod order;
mod orderings;
mod pages;
mod queues;
mod races;
mod settings;
mod state;
mod task;

use espalier_interface::{Component, Instance, OptionKind, OptionSpec, Role};

use backend::LateBackend;

const fn option(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    range: &'static str,
    doc: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        kind,
        default,
        range,
        doc,
    }
}

const LATE: Component = Component {
    name: "late",
    role: Role::BACKEND,
    doc: "computes like `cpu`, later: streams are queues, and the host cannot touch device memory",
    options: &[
        option(
            "order",
            OptionKind::TEXT,
            "\"late\"",
            "late | early | mixed",
            "when tasks run: only when they are waited for, as early as their waits allow, or at random",
        ),
        option(
            "seed",
            OptionKind::INTEGER,
            "0",
            "0..",
            "seed of the order `mixed`",
        ),
        option(
            "devices",
            OptionKind::INTEGER,
            "4",
            "1..=64",
            "number of devices, each with its own memory",
        ),
        option(
            "device_memory",
            OptionKind::TEXT,
            "null",
            "",
            "bytes of each device, such as 64MiB; unset: all of the machine's",
        ),
        option(
            "mapped_dir",
            OptionKind::TEXT,
            "null",
            "",
            "folder of mapped files; unset: TMPDIR, else /var/tmp",
        ),
        option(
            "host_operands",
            OptionKind::TEXT,
            "\"allow\"",
            "allow | refuse",
            "whether kernels may work on pinned and lent memory",
        ),
        option(
            "hides",
            OptionKind::TEXT,
            "\"\"",
            "",
            "ops of `cpu` that it lacks, `NAME` or `NAME.VERSION`, joined by commas: they run by their decompositions",
        ),
        option(
            "download_secs",
            OptionKind::NUMBER,
            "0",
            "0..=3600",
            "seconds that a download takes",
        ),
        option(
            "slow_device",
            OptionKind::INTEGER,
            "0",
            "0..",
            "the only device whose downloads and launches are slow, from 1 on; 0: all",
        ),
        option(
            "slow_download",
            OptionKind::INTEGER,
            "0",
            "0..",
            "the number of the only download of a device that takes `download_secs`; 0: all",
        ),
        option(
            "slow_launch",
            OptionKind::INTEGER,
            "0",
            "0..",
            "the number of the launch of a device that begins `launch_secs` late; 0: none",
        ),
        option(
            "launch_secs",
            OptionKind::NUMBER,
            "0",
            "0..=3600",
            "seconds that the device does nothing before the launch `slow_launch`",
        ),
        option(
            "drop_record",
            OptionKind::INTEGER,
            "0",
            "0..",
            "the number of the record call of a device that is ignored; 0: none",
        ),
        option(
            "drop_wait",
            OptionKind::INTEGER,
            "0",
            "0..",
            "the number of the wait call of a device that is ignored; 0: none",
        ),
        option(
            "cast_workspace",
            OptionKind::INTEGER,
            "0",
            "0..",
            "bytes of workspace that a cast of flat runs asks for, and writes",
        ),
        option(
            "fail_launch",
            OptionKind::INTEGER,
            "0",
            "0..",
            "the number of the launch of a device that fails when it runs; 0: none",
        ),
        option(
            "fail_op",
            OptionKind::TEXT,
            "null",
            "",
            "the op whose launches `fail_launch` counts; all ops by default",
        ),
        option(
            "tells",
            OptionKind::TEXT,
            "\"waits\"",
            "waits | calls",
            "which calls tell of a task that failed: those that wait, or any call on a stream",
        ),
        option(
            "races",
            OptionKind::TEXT,
            "\"report\"",
            "report | count",
            "whether tasks that use the same bytes unordered are a failure, or are only counted",
        ),
        option(
            "orderings",
            OptionKind::TEXT,
            "null",
            "",
            "file that gets a line for each record and wait between streams when a device is closed: \
             the race that there would be without it",
        ),
        option(
            "leak_report",
            OptionKind::TEXT,
            "null",
            "",
            "file that gets a line of counts when a device is closed, and every `report_every` host waits",
        ),
        option(
            "report_every",
            OptionKind::INTEGER,
            "0",
            "0..",
            "host waits (downloads and synchronizations) between two lines of counts; 0: none",
        ),
    ],
    capabilities: &[("compute", "bf16,f32,f64")],
    create: |options, services| {
        Ok(Instance::Backend(Box::new(LateBackend::new(
            options, services,
        )?)))
    },
};

espalier_interface::declare_plugin! { name: "late", components: &[LATE] }

#[cfg(test)]
mod tests;
