//! A program that is started -> how it ended, within a time limit, and its use of time and memory.
#![allow(unsafe_code)] // `wait4` alone tells what one process took, `waitid` whether it has ended.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The documented exit codes.
const DOCUMENTED: [i32; 12] = [0, 2, 3, 4, 5, 6, 7, 8, 9, 129, 130, 143];

/// Time limit of a run of the suite's size on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, if any.
    pub code: Option<i32>,
    /// The signal that ended it, otherwise.
    pub signal: Option<i32>,
    /// Its standard error.
    pub stderr: String,
    /// Whether it did not end in time by itself.
    pub late: bool,
    /// Its wall-clock time.
    pub took: Duration,
    /// The processor time of it and its waited-for children.
    pub worked: Duration,
    /// Its peak memory, in KiB. Memory held for less than a millisecond before its end may be
    /// missing.
    pub peak_kib: u64,
}

/// Interval between two samples of a process.
const LOOK: Duration = Duration::from_millis(1);

/// Whether a child has ended; its process number remains valid until it is waited for.
fn has_ended(pid: libc::pid_t) -> bool {
    // SAFETY: all zeros is a valid `siginfo_t`, which outlives the call.
    let (code, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        (
            libc::waitid(libc::P_PID, pid.unsigned_abs(), &mut info, options),
            info,
        )
    };
    assert_eq!(code, 0, "the child is ours");
    // SAFETY: `waitid` has filled it, or left it zero where nothing has ended.
    unsafe { info.si_pid() == pid }
}

/// The peak memory of a process so far. The value of `wait4` includes the parent's memory before
/// `exec`.
fn held_kib(process: u32) -> u64 {
    let program = fs::read_link(format!("/proc/{process}/exe"));
    if program.ok() == fs::read_link("/proc/self/exe").ok() {
        return 0;
    }
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let held = held.and_then(|held| held.split_whitespace().next()?.parse().ok());
    held.unwrap_or(0)
}

fn time(value: libc::timeval) -> Duration {
    Duration::from_secs(value.tv_sec.unsigned_abs())
        + Duration::from_micros(value.tv_usec.unsigned_abs())
}

impl Ended {
    /// Runs `command` until it ends, at most for `limit`. Its standard output is discarded.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn of(command: &mut Command, limit: Duration) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ended::of_as_is(command, limit)
    }

    /// As [`Ended::of`], with the command's own standard streams.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn of_as_is(command: &mut Command, limit: Duration) -> Self {
        Ended::of_while(command, limit, |_| ())
    }

    /// Like [`Ended::of_as_is`]; `meanwhile` runs beside it with the process number.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn of_while(
        command: &mut Command,
        limit: Duration,
        meanwhile: impl FnOnce(u32) + Send,
    ) -> Self {
        let started = Instant::now();
        // `wait4` below waits for it, and reports its use of resources.
        #[allow(clippy::zombie_processes)]
        let mut child = command
            .process_group(0)
            .spawn()
            .expect("the program starts");
        let pid = libc::pid_t::try_from(child.id()).expect("a process number");
        let stderr = child.stderr.take();
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            stderr.map(|mut stderr| stderr.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let number = child.id();
        let (mut late, mut peak_kib) = (false, 0);
        let took = thread::scope(|scope| {
            scope.spawn(move || meanwhile(number));
            while !has_ended(pid) {
                peak_kib = peak_kib.max(held_kib(number));
                if !late && started.elapsed() > limit {
                    late = true;
                    // SAFETY: the process leads a group of its own and was not waited for yet.
                    unsafe { libc::kill(-pid, libc::SIGKILL) };
                }
                thread::sleep(LOOK);
            }
            started.elapsed()
        });
        let mut status = 0;
        // SAFETY: all zeros is a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both places outlive the call.
        let found = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        assert_eq!(found, pid, "the child is ours");
        Ended {
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
            late,
            took,
            worked: time(usage.ru_utime) + time(usage.ru_stime),
            stderr: reader.join().expect("it only reads"),
            peak_kib,
        }
    }

    /// The last line of its standard error.
    pub fn last_line(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }

    /// Whether its exit code is 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Expects an end in time with a documented exit code and, after a failure, one line with a
    /// cause and a next step.
    ///
    /// # Panics
    /// If it has neither.
    pub fn as_documented(&self, case: &str) {
        let (stderr, took) = (&self.stderr, self.took);
        assert!(!self.late, "{case}: no end in {took:?}: {stderr}");
        assert!(
            self.signal.is_none(),
            "{case}: signal {:?}: {stderr}",
            self.signal
        );
        assert!(!stderr.contains("panicked"), "{case}: {stderr}");
        let code = self.code.expect("no signal");
        assert!(
            DOCUMENTED.contains(&code),
            "{case}: exit code {code}: {stderr}"
        );
        assert!(
            code == 0 || is_shaped(self.last_line(), code),
            "{case}: exit code {code}, no cause and next step: {stderr}"
        );
    }

    /// Expects success.
    ///
    /// # Panics
    /// If it failed.
    pub fn as_success(&self, case: &str) {
        self.as_documented(case);
        assert!(
            self.succeeded(),
            "{case}: exit code {:?}: {}",
            self.code,
            self.last_line()
        );
    }
}

/// Stops a process that was started here.
///
/// # Panics
/// If it has ended.
pub fn stop(process: u32) {
    let pid = libc::pid_t::try_from(process).expect("a process number");
    // SAFETY: a signal is sent, no memory is touched.
    let sent = unsafe { libc::kill(pid, libc::SIGSTOP) };
    assert_eq!(sent, 0, "process {process} has ended");
}

/// Whether the last line of a failure with `code` has a cause and a next step. What a signal
/// stopped is no error.
pub fn is_shaped(line: &str, code: i32) -> bool {
    let begin = if code > 128 {
        "stopped by signal "
    } else {
        "error: "
    };
    line.starts_with(begin) && line.contains("; next: ")
}

/// Sends a signal, such as `TERM`, to a process that was started here; ended processes are ignored.
///
/// # Panics
/// If there is no `kill`.
pub fn send(process: u32, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([format!("-{signal}"), process.to_string()]);
    kill.stderr(Stdio::null()).status().expect("kill starts");
}

/// `command` with limited address space: an endless read fails before the machine runs out of
/// memory.
pub fn bounded(command: &Command) -> Command {
    const KIB: u64 = 4 << 20;
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("ulimit -v {KIB}; exec \"$@\""))
        .arg("sh");
    carried(command, shell)
}

/// `around` with the arguments, folder and environment of `command` appended.
pub fn carried(command: &Command, mut around: Command) -> Command {
    around.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        around.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => around.env(name, value),
            None => around.env_remove(name),
        };
    }
    around
}
