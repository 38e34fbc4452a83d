//! The processes of a run under mpirun: which is which rank, how each ended, and whether any is left.
#![allow(dead_code)] // Each test takes what it needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use espalier_samples::mpirun;

/// Keeps the exit code of each process in a file, whatever mpirun makes of it.
const WRAPPED: &str =
    r#"trap "" TERM; "$@"; code=$?; echo $code > "$0.$OMPI_COMM_WORLD_RANK"; exit $code"#;

/// A run that goes on in processes of its own.
pub struct Company {
    launcher: Child,
    codes: PathBuf,
    /// A path that only its processes have among their arguments.
    out: PathBuf,
}

impl Company {
    /// Starts `command`, which writes to `out`, in so many processes. Their exit codes lie in files `codes.RANK`.
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
        // mpirun waits so long before it kills for good, whoever is left.
        launcher.env("OMPI_MCA_odls_base_sigkill_timeout", "2");
        let launcher = launcher
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Company {
            launcher: launcher.expect("mpirun starts"),
            codes: codes.to_owned(),
            out: out.to_owned(),
        }
    }

    /// Waits until `path` is there.
    pub fn await_file(&mut self, path: &Path) {
        let begun = Instant::now();
        while !path.exists() {
            let ended = self.launcher.try_wait().expect("it is ours");
            assert!(
                ended.is_none(),
                "the run ended before {}: {}",
                path.display(),
                self.said()
            );
            assert!(begun.elapsed().as_secs() < 300, "no {}", path.display());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends `signal` to the process of `rank`.
    pub fn signal(&self, rank: u32, signal: &str) {
        let named = format!("OMPI_COMM_WORLD_RANK={rank}");
        let is_victim = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|entry| entry == named.as_bytes())
        };
        let victim = running(&self.out)
            .into_iter()
            .find(is_victim)
            .expect("it runs");
        let sent = Command::new("kill")
            .args([signal, &victim.to_string()])
            .status();
        assert!(
            sent.expect("kill starts").success(),
            "{signal} to rank {rank}"
        );
    }

    /// Waits until no process of the run is left but `stopped` ones; how long that took.
    pub fn await_end(&mut self, stopped: usize) -> Duration {
        let begun = Instant::now();
        while running(&self.out).len() > stopped {
            assert!(
                begun.elapsed().as_secs() < 60,
                "processes are left: {:?}",
                running(&self.out)
            );
            thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed()
    }

    /// What mpirun and its processes said, once they have ended, and the exit code of every process that wrote one.
    pub fn end(self) -> (Output, Vec<Option<i32>>) {
        let output = self.launcher.wait_with_output().expect("it is ours");
        let orphans = running(&self.out);
        assert!(orphans.is_empty(), "orphans: {orphans:?}");
        let codes = (0..8).map(|rank| {
            let code = fs::read_to_string(format!("{}.{rank}", self.codes.display()));
            code.ok().and_then(|code| code.trim().parse().ok())
        });
        (output, codes.collect())
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        let stderr = self.launcher.stderr.take();
        stderr.map(|mut stderr| std::io::Read::read_to_string(&mut stderr, &mut said));
        said
    }
}

/// The numbers of the host's processes that write to `out`.
fn running(out: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("Linux").filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let is_ours = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0);
        let program = words.next().unwrap_or_default();
        program == env!("CARGO_BIN_EXE_host").as_bytes()
            && words.any(|word| word == out.as_os_str().as_encoded_bytes())
    };
    processes.filter(is_ours).collect()
}
