//! The processes of a run under mpirun: their ranks, their ends, and whether any remain.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use espalier_samples::mpirun;

use crate::built::program;
use crate::training::Training;

/// Keeps the exit code of each process in a file, since mpirun may change it.
const WRAPPED: &str =
    r#"trap "" TERM; "$@"; code=$?; echo $code > "$0.$OMPI_COMM_WORLD_RANK"; exit $code"#;

/// Longest time from the end of the processes until that of mpirun.
const LAUNCHER_ENDS: Duration = Duration::from_secs(30);

/// A run in processes of its own.
pub struct RankGroup {
    launcher: Child,
    codes: PathBuf,
    /// A path that only its processes have among their arguments.
    out: PathBuf,
}

impl RankGroup {
    /// Starts the run of `training`, which writes to `out`, in `processes` processes.
    pub fn of(processes: u32, training: &Training, out: &str, more: &str) -> Self {
        let codes = training.path(&format!("codes-{out}-{}", more.len()));
        let command = training.command(out, more);
        RankGroup::start(processes, &command, &training.path(out), &codes)
    }

    /// Starts `command`, which writes to `out`, in `processes` processes. Their exit codes are
    /// written to files `codes.RANK`.
    pub fn start(processes: u32, command: &Command, out: &Path, codes: &Path) -> Self {
        let mut wrapped = Command::new("sh");
        wrapped.arg("-c").arg(WRAPPED).arg(codes);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped.current_dir(command.get_current_dir().expect("a folder of its own"));
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                wrapped.env(name, value);
            }
        }
        let mut launcher = mpirun(processes, &wrapped);
        // Time before mpirun kills the remaining processes.
        launcher.env("OMPI_MCA_odls_base_sigkill_timeout", "2");
        let launcher = launcher
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        RankGroup {
            launcher: launcher.expect("mpirun starts"),
            codes: codes.to_owned(),
            out: out.to_owned(),
        }
    }

    /// Waits until `path` exists.
    pub fn await_file(&mut self, path: &Path) {
        let started = Instant::now();
        while !path.exists() {
            let ended = self.launcher.try_wait().expect("it is ours");
            assert!(
                ended.is_none(),
                "the run ended before {}: {}",
                path.display(),
                self.printed()
            );
            assert!(started.elapsed().as_secs() < 300, "no {}", path.display());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends `signal` to the process of `rank`.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, rank: u32, signal: &str) {
        self.try_signal(rank, signal).expect("it runs");
    }

    /// Like [`RankGroup::signal`]; does nothing if no process of that rank has started, or it has
    /// ended.
    pub fn try_signal(&self, rank: u32, signal: &str) -> Option<()> {
        let victim = self.process(rank)?;
        let mut kill = Command::new("kill");
        let sent = kill
            .args([signal, &victim.to_string()])
            .stderr(Stdio::null())
            .status();
        sent.expect("kill starts").success().then_some(())
    }

    /// Waits until the process of `rank` exists, and returns its number.
    pub fn await_process(&self, rank: u32) -> u32 {
        let started = Instant::now();
        loop {
            if let Some(process) = self.process(rank) {
                return process;
            }
            assert!(started.elapsed().as_secs() < 60, "no rank {rank}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn process(&self, rank: u32) -> Option<u32> {
        let rank = rank.to_string();
        running(&self.out)
            .into_iter()
            .find(|&process| variable(process, "OMPI_COMM_WORLD_RANK").as_ref() == Some(&rank))
    }

    /// Waits until no process of the run remains except `stopped` ones; returns the time waited.
    pub fn await_end(&mut self, stopped: usize) -> Duration {
        let started = Instant::now();
        while running(&self.out).len() > stopped {
            assert!(
                started.elapsed().as_secs() < 60,
                "processes are left: {:?}",
                running(&self.out)
            );
            thread::sleep(Duration::from_millis(10));
        }
        started.elapsed()
    }

    /// The output of mpirun and its processes, once they have ended, and the exit code of every
    /// process that wrote one.
    pub fn end(mut self) -> (Output, Vec<Option<i32>>) {
        let (ended, ends) = mpsc::channel::<()>();
        let (launcher, out) = (self.launcher.id(), self.out.clone());
        let watch = thread::spawn(move || end_hanging_launcher(launcher, &out, &ends));
        let printed = self.printed().into_bytes();
        let status = self.launcher.wait().expect("it is ours");
        drop(ended);
        if let Err(panic) = watch.join() {
            resume_unwind(panic);
        }
        let output = Output {
            status,
            stdout: Vec::new(),
            stderr: printed,
        };
        let orphans = running(&self.out);
        assert!(orphans.is_empty(), "orphans: {orphans:?}");
        let codes = (0..8).map(|rank| {
            let code = fs::read_to_string(format!("{}.{rank}", self.codes.display()));
            code.ok().and_then(|code| code.trim().parse().ok())
        });
        (output, codes.collect())
    }

    fn printed(&mut self) -> String {
        let mut printed = String::new();
        let stderr = self.launcher.stderr.take();
        stderr.map(|mut stderr| std::io::Read::read_to_string(&mut stderr, &mut printed));
        printed
    }
}

/// Kills an mpirun whose processes have ended and that has not, until `ends` is closed. That of
/// Open MPI 4.1 was seen to wait for a lock for ever in `PMIx_server_finalize`.
fn end_hanging_launcher(launcher: u32, out: &Path, ends: &mpsc::Receiver<()>) {
    let mut alone: Option<Instant> = None;
    while ends.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
        if !running(out).is_empty() {
            alone = None;
        } else if alone.get_or_insert_with(Instant::now).elapsed() > LAUNCHER_ENDS {
            crate::ended::send(launcher, "KILL");
            return;
        }
    }
}

/// A variable of a process's environment.
pub fn variable(process: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment);
    let mut entries = environment.split('\0');
    let value = entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
    value.map(str::to_owned)
}

impl Drop for RankGroup {
    /// Remaining processes after a failure, including stopped ones, are killed.
    fn drop(&mut self) {
        for process in running(&self.out) {
            crate::ended::send(process, "KILL");
        }
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

/// The numbers of the host's processes that write to `out`.
fn running(out: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("Linux").filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let program = program();
    let is_ours = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        let name = words.next().unwrap_or_default();
        name == program.as_os_str().as_encoded_bytes()
            && words.any(|word| word == out.as_os_str().as_encoded_bytes())
    };
    processes.filter(is_ours).collect()
}
