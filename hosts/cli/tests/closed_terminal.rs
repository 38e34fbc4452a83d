//! The terminal of a run closes: a checkpoint is saved, and the run resumes to the same bits.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)] // A terminal, and the process that it controls.

use espalier_torture::training;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

use training::{Training, names};

/// Longest wait for a run's first steps, and for its end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Steps of an undisturbed run.
const STEPS: usize = 3600;

/// A terminal of 80 columns: the controlling end and the end for programs.
fn terminal() -> (File, File) {
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut shown, mut program) = (-1, -1);
    // SAFETY: the two numbers are written, the size is read, and the null pointers ask for nothing.
    let opened = unsafe {
        libc::openpty(
            &mut shown,
            &mut program,
            ptr::null_mut(),
            ptr::null(),
            &size,
        )
    };
    assert_eq!(opened, 0, "no terminal: {}", io::Error::last_os_error());
    for end in [shown, program] {
        // SAFETY: it was just opened.
        let kept = unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
        assert_eq!(kept, 0, "{}", io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and nothing else has them.
    unsafe { (File::from_raw_fd(shown), File::from_raw_fd(program)) }
}

/// The command with a controlling terminal of its own, and that terminal's other end.
fn on_a_terminal(mut command: Command) -> (Child, File) {
    let (shown, program) = terminal();
    let end = || Stdio::from(program.try_clone().expect("room for a descriptor"));
    command.stdin(end()).stdout(end()).stderr(end());
    command.env("TERM", "xterm");
    // SAFETY: all calls are allowed between fork and exec and touch no memory.
    unsafe {
        command.pre_exec(|| {
            // Below `nohup` it is ignored, and a program keeps it ignored.
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            if libc::setsid() >= 0 && libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        });
    }
    (command.spawn().expect("the program was built"), shown)
}

#[test]
fn a_closed_terminal_saves_a_checkpoint_and_the_run_resumes_to_the_same_bits() {
    let training = Training::new(&format!(
        "--plugins nf4,lora --set run.epochs={} --set run.save_every=100000 --set run.eval_every=500",
        STEPS / 3
    ));
    let mut loud = Command::new(env!("CARGO_BIN_EXE_host"));
    let quiet = training.command("out", "");
    loud.current_dir(training.folder.path());
    loud.args(quiet.get_args().filter(|word| *word != "--quiet"));
    let (mut run, mut shown) = on_a_terminal(loud);
    let steps = || {
        let metrics = fs::read_to_string(training.path("out/metrics.jsonl")).unwrap_or_default();
        let lines = metrics.lines();
        lines.filter(|line| line.contains("grad_norm")).count()
    };
    let (begin, mut seen) = (Instant::now(), Vec::new());
    let mut buffer = [0; 4096];
    while steps() < 2 || !seen.contains(&0x1b) {
        assert!(
            begin.elapsed() < PATIENCE,
            "no step, or no bar, in {PATIENCE:?}"
        );
        let read = shown.read(&mut buffer).expect("bars turn while it runs");
        seen.extend_from_slice(&buffer[..read]);
    }
    drop(shown);
    let closed = Instant::now();
    let status = loop {
        if let Some(status) = run.try_wait().expect("it was started here") {
            break status;
        }
        assert!(closed.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    let log = fs::read_to_string(training.path("out/log.txt")).expect("a log");
    assert_eq!(status.code(), Some(129), "{status:?}: {log}");
    let done = steps();
    assert!(done < STEPS, "it had done all");
    assert_eq!(
        names(&training.path("out/checkpoints")),
        [format!("step-{done}")]
    );
    let last = log.lines().last().unwrap_or_default();
    let words = format!("stopped by signal 1 after step {done}; next: continue with `");
    assert!(last.contains(&words), "{log}");
    let resumed = training.succeed("out", "--resume");
    assert!(resumed == training.succeed("whole", ""), "other bits");
}
