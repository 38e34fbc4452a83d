//! The component's options -> the settings of its devices.

use std::path::PathBuf;
use std::time::Duration;

use espalier_interface::{OpId, Options, PluginError, Result};

use crate::order::Order;

/// Whether kernels may work on pinned and lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOperands {
    /// They may.
    Allow,
    /// A launch is refused.
    Refuse,
}

/// Which calls tell of a task that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    /// Those that wait: `synchronize` and `download`.
    Waits,
    /// Any call on a stream, as CUDA's calls do.
    Calls,
}

/// What a device does about tasks that use the same bytes although nothing orders them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Races {
    /// A race is a failure that the next wait of the host reports.
    Report,
    /// It is only counted.
    Count,
}

/// What every device does.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When tasks run.
    pub order: Order,
    /// Seed of the order `mixed`.
    pub seed: u64,
    /// Number of devices.
    pub devices: u32,
    /// Whether kernels may work on the host's memory.
    pub host_operands: HostOperands,
    /// Ops of `cpu` that it does not have.
    pub hides: Hidden,
    /// How long a download takes.
    pub download: Duration,
    /// Which device and which of its downloads take that long, from 1 on; 0: all.
    pub slow: [u64; 2],
    /// The launch of the slow devices that begins this much later, from 1 on; 0: none.
    pub slow_launch: (u64, Duration),
    /// The `record` call that is ignored, from 1 on; 0: none.
    pub drop_record: u64,
    /// The `wait` call that is ignored, from 1 on; 0: none.
    pub drop_wait: u64,
    /// Which calls tell of a failed task.
    pub tells: Tells,
    /// What a race is.
    pub races: Races,
    /// File of the calls that order streams, each with the race that there is without it.
    pub orderings: Option<PathBuf>,
    /// Bytes of workspace that a cast wants at least.
    pub cast_workspace: u64,
    /// The launch that fails when it runs, from 1 on; 0: none.
    pub fail_launch: u64,
    /// The op whose launches that number counts; none: all.
    pub fail_op: Option<String>,
    /// File of the lines of counts.
    pub report: Option<PathBuf>,
    /// Host waits between two lines; 0: only the last line.
    pub report_every: u64,
}

/// Ops: all versions of a `NAME`, or one as `NAME.VERSION`.
#[derive(Clone, Debug)]
pub struct Hidden(Vec<String>);

impl Hidden {
    /// Whether `op` is among them.
    pub fn has(&self, op: &OpId) -> bool {
        self.0.contains(&op.name) || self.0.contains(&op.to_string())
    }
}

impl Settings {
    /// The settings in `options`, which the host has checked.
    ///
    /// # Errors
    /// `INVALID` where an option is missing or of another type.
    pub fn new(options: &Options) -> Result<Self> {
        let order = options.text("order")?;
        let refuses = options.text("host_operands")? == "refuse";
        let seconds = |name| {
            let seconds = Duration::try_from_secs_f64(options.number(name)?);
            seconds.map_err(|why| PluginError::invalid(format!("{name}: {why}")))
        };
        let counts_races = options.text("races")? == "count";
        let text = |name| options.0.get(name).and_then(|value| value.as_str());
        Ok(Settings {
            order: Order::named(&order).ok_or_else(|| {
                PluginError::invalid(format!(
                    "order `{order}`: expected `late`, `early` or `mixed`"
                ))
            })?,
            seed: options.count("seed")?,
            devices: options.count("devices")? as u32,
            host_operands: if refuses {
                HostOperands::Refuse
            } else {
                HostOperands::Allow
            },
            hides: Hidden(
                options
                    .text("hides")?
                    .split(',')
                    .map(|name| name.trim().to_owned())
                    .collect(),
            ),
            download: seconds("download_secs")?,
            slow: [
                options.count("slow_device")?,
                options.count("slow_download")?,
            ],
            slow_launch: (options.count("slow_launch")?, seconds("launch_secs")?),
            drop_record: options.count("drop_record")?,
            drop_wait: options.count("drop_wait")?,
            tells: if options.text("tells")? == "calls" {
                Tells::Calls
            } else {
                Tells::Waits
            },
            races: if counts_races {
                Races::Count
            } else {
                Races::Report
            },
            orderings: text("orderings").map(PathBuf::from),
            cast_workspace: options.count("cast_workspace")?,
            fail_launch: options.count("fail_launch")?,
            fail_op: text("fail_op").map(str::to_owned),
            report: text("leak_report").map(PathBuf::from),
            report_every: options.count("report_every")?,
        })
    }
}
