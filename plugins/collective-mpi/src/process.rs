//! This process in MPI: started once, finalized at the process's exit unless a group failed.
#![allow(unsafe_code)] // MPI's own functions.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use espalier_interface::{ErrorCode, PluginError, Result, Services};
use mpi::Threading;
use mpi::ffi;

/// The lowest tag of a group; lower ones are for joining.
const FIRST_TAG: i32 = 16;

/// How long a process that was asked to stop, and stopped in order, waits for the others: they may
/// still save.
const TO_SAVE: Duration = Duration::from_secs(60);

/// How long a process waits that is asked to stop while it waits.
const GRACE: Duration = Duration::from_secs(2);

/// A process among all started ones.
pub struct Process {
    /// Its rank.
    pub rank: u32,
    /// The number of processes.
    pub size: u32,
    /// Serializes calls of MPI.
    turn: Mutex<()>,
    /// Serializes the joining of groups.
    joining: Mutex<()>,
    /// Groups that are joined later may have no lower tag.
    next_tag: AtomicI32,
    /// MPI cannot be finalized: a group was aborted.
    broken: AtomicBool,
    /// Groups that are joined.
    groups: AtomicU32,
    /// Reports whether the run is asked to stop.
    services: Arc<dyn Services>,
}

static PROCESS: OnceLock<Result<Process>> = OnceLock::new();

/// This process, which starts MPI on the first call.
///
/// # Errors
/// `DEVICE` where MPI does not start or allows one thread only.
pub fn process(services: &Arc<dyn Services>) -> Result<&'static Process> {
    let process = PROCESS.get_or_init(|| begin(Arc::clone(services)));
    process.as_ref().map_err(Clone::clone)
}

fn begin(services: Arc<dyn Services>) -> Result<Process> {
    let failed = |what: &str| PluginError::new(ErrorCode::DEVICE, format!("MPI: {what}"));
    global_symbols();
    let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Serialized) else {
        return Err(failed("something else in this process has started it"));
    };
    // Dropping it would finalize MPI: that is done at exit, and not after a group was aborted.
    std::mem::forget(universe);
    if threading < Threading::Serialized {
        return Err(failed("this build of it allows calls from one thread only"));
    }
    let (mut rank, mut size) = (0, 0);
    // SAFETY: MPI has started; both addresses are valid.
    let codes = unsafe {
        [
            ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN),
            ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &mut rank),
            ffi::MPI_Comm_size(ffi::RSMPI_COMM_WORLD, &mut size),
        ]
    };
    if codes != [0; 3] {
        return Err(failed("it does not say which process this is"));
    }
    // SAFETY: the function lives as long as this library, which is never unloaded.
    unsafe { libc::atexit(end) };
    Ok(Process {
        rank: rank as u32,
        size: size as u32,
        turn: Mutex::default(),
        joining: Mutex::default(),
        next_tag: AtomicI32::new(FIRST_TAG),
        broken: AtomicBool::new(false),
        groups: AtomicU32::new(0),
        services,
    })
}

/// Open MPI loads its components itself and resolves its symbols among the global ones; a plugin's
/// own are local.
fn global_symbols() {
    let names = [c"libmpi.so.40", c"libmpi.so.12", c"libmpi.so"];
    for name in names {
        // SAFETY: only a library that is already open is found, so no initialiser runs.
        let found = unsafe {
            libc::dlopen(
                name.as_ptr(),
                libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD,
            )
        };
        if !found.is_null() {
            return;
        }
    }
}

/// Finalizes MPI where all processes end in order: it would wait for one that does not.
extern "C" fn end() {
    let Some(Ok(process)) = PROCESS.get() else {
        return;
    };
    if process.is_broken() || process.groups.load(Ordering::Acquire) > 0 {
        return;
    }
    let turn = process.turn();
    let stopped = || process.services.cancelled();
    let mut until = stopped().then(|| Instant::now() + TO_SAVE);
    // SAFETY: MPI has started and not ended; the request is not freed before the process ends.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let mut done = 0;
        let mut code = ffi::MPI_Ibarrier(ffi::RSMPI_COMM_WORLD, &mut request);
        // The others may still write shared results. If one fails instead, the launcher asks all to
        // stop.
        while code == 0 && done == 0 {
            if until.is_none() && stopped() {
                until = Some(Instant::now() + GRACE);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            code = ffi::MPI_Test(&mut request, &mut done, ffi::RSMPI_STATUS_IGNORE);
            std::thread::sleep(Duration::from_millis(1));
        }
        if code == 0 {
            ffi::MPI_Finalize();
        }
    }
    drop(turn);
}

impl Process {
    /// Waits for this thread's turn in MPI.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this thread's turn to join a group.
    pub fn joining(&self) -> MutexGuard<'_, ()> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lowest tag that no group of this process has.
    pub fn next_tag(&self) -> i32 {
        self.next_tag.load(Ordering::Acquire)
    }

    /// Records a joined group with this tag.
    pub fn entered(&self, tag: i32) {
        self.next_tag.store(tag + 1, Ordering::Release);
        self.groups.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a group was left.
    pub fn left(&self) {
        self.groups.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records that a group was aborted: no more messages are sent or received.
    pub fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether a group was aborted.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}
