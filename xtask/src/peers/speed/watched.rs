//! A program -> its output and the most memory it held, looked at while it runs, to its end or
//! until it has done enough.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of a failed program's errors that are printed.
const LINES: usize = 15;

/// A program that succeeded.
pub struct Watched {
    /// Its standard output.
    pub output: String,
    /// The most resident memory, in bytes: `VmHWM` of its process.
    pub peak_bytes: u64,
    /// Of these, mapped pages of files: `RssFile`, as it was last.
    pub file_bytes: u64,
}

impl Watched {
    /// The most memory of the process's own: without pages of files, such as the program's code.
    pub fn own_peak_bytes(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.file_bytes)
    }
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Default)]
struct Resident {
    peak: u64,
    file: u64,
}

/// Whether a program that is watched goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    GoOn,
    Stop,
}

/// Keeps a Python program from the network and from writing beside its scripts.
pub fn offline(command: &mut Command) {
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("TOKENIZERS_PARALLELISM", "false");
}

/// Runs a program to its end. Its output goes to `log.out` and `log.err`. `look` is called again
/// and again while it runs, with the time since its start.
///
/// # Errors
/// Where it cannot be started or fails; the message ends in its last lines of errors.
pub fn run(command: &mut Command, log: &Path, mut look: impl FnMut(Duration)) -> Result<Watched> {
    watch(command, log, |since| {
        look(since);
        Look::GoOn
    })
}

/// As [`run`], until `is_enough`; then the program is killed.
///
/// # Errors
/// As [`run`]; where it ends by itself before.
pub fn run_until(
    command: &mut Command,
    log: &Path,
    mut is_enough: impl FnMut() -> bool,
) -> Result<Watched> {
    let mut stopped = false;
    let watched = watch(command, log, |_| {
        stopped = stopped || is_enough();
        if stopped { Look::Stop } else { Look::GoOn }
    })?;
    ensure!(stopped, "the program ended before it had done enough");
    Ok(watched)
}

fn watch(
    command: &mut Command,
    log: &Path,
    mut look: impl FnMut(Duration) -> Look,
) -> Result<Watched> {
    let [out, err] = ["out", "err"].map(|end| PathBuf::from(format!("{}.{end}", log.display())));
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let create = |path: &Path| {
        File::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    command.stdout(create(&out)?).stderr(create(&err)?);
    let name = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let (status, resident) = wait(child, || look(begin.elapsed()))?;
    if status.is_some_and(|status| !status.success()) {
        let errors = fs::read_to_string(&err).unwrap_or_default();
        let lines: Vec<&str> = errors.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        let status = status.map_or(String::new(), |status| status.to_string());
        bail!(
            "{name} failed with {status}; the end of {}:\n{last}",
            err.display()
        );
    }
    let output =
        fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    Ok(Watched {
        output,
        peak_bytes: resident.peak,
        file_bytes: resident.file,
    })
}

/// Waits for a child and returns its status, none where it was stopped, and its memory. The
/// kernel's figure only grows, so the last look before the end misses what is allocated in the last
/// hundredth of a second.
fn wait(
    mut child: Child,
    mut look: impl FnMut() -> Look,
) -> Result<(Option<ExitStatus>, Resident)> {
    let status_file = format!("/proc/{}/status", child.id());
    let mut resident = Resident::default();
    loop {
        if let Some(status) = child.try_wait()? {
            look();
            return Ok((Some(status), resident));
        }
        let looked = look();
        let status = fs::read_to_string(&status_file).unwrap_or_default();
        resident.peak = resident.peak.max(bytes(&status, "VmHWM:").unwrap_or(0));
        resident.file = bytes(&status, "RssFile:").unwrap_or(resident.file);
        if looked == Look::Stop {
            child.kill()?;
            child.wait()?;
            return Ok((None, resident));
        }
        thread::sleep(LOOK);
    }
}

/// The bytes in a line such as `VmHWM:   1234 kB`.
fn bytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read_in_bytes() {
        let status = "Name:\thost\nVmPeak:\t  900 kB\nVmHWM:\t     512 kB\nVmRSS:\t 4 kB\n";
        assert_eq!(bytes(status, "VmHWM:"), Some(512 * 1024));
        assert_eq!(bytes("Name:\thost\n", "VmHWM:"), None);
    }

    #[test]
    fn a_program_gives_its_output_and_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.2; echo done"]);
        let mut looks = 0;
        let watched = run(&mut command, &folder.path().join("log"), |_| looks += 1).unwrap();
        assert_eq!(watched.output, "done\n");
        assert!(watched.peak_bytes > 0 && looks > 1, "{looks} looks");
    }

    #[test]
    fn a_program_that_has_done_enough_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60"]);
        let mut looks = 0;
        let enough = || {
            looks += 1;
            looks == 3
        };
        let watched = run_until(&mut command, &log, enough).unwrap();
        assert!(watched.own_peak_bytes() > 0);
        let mut command = Command::new("true");
        let early = run_until(&mut command, &log, || false).err().unwrap();
        assert!(early.to_string().contains("before"), "{early}");
    }

    #[test]
    fn a_failure_names_the_program_and_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no memory >&2; exit 3"]);
        let failure = run(&mut command, &folder.path().join("log"), |_| ())
            .err()
            .unwrap();
        let text = failure.to_string();
        assert!(
            text.contains("sh failed") && text.contains("no memory"),
            "{text}"
        );
    }
}
