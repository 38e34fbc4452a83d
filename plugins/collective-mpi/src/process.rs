//! This process in MPI: begun once, ended at the process's exit where nothing went wrong.
#![allow(unsafe_code)] // MPI's own functions.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use espalier_interface::{ErrorCode, PluginError, Result, Services};
use mpi::Threading;
use mpi::ffi;

/// The lowest tag of a group; those below are for joining.
const FIRST_TAG: i32 = 16;

/// How long a process that was asked to stop, and did in order, waits for the others to end: they
/// may still save.
const TO_SAVE: Duration = Duration::from_secs(60);

/// How long one waits that is asked to stop while it waits.
const GRACE: Duration = Duration::from_secs(2);

/// A process among all that were started.
pub struct Process {
    /// Its number.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// One thread at a time is in MPI.
    turn: Mutex<()>,
    /// One group at a time is joined.
    joining: Mutex<()>,
    /// No group that is joined later may have a lower tag.
    next_tag: AtomicI32,
    /// MPI cannot be ended in order: a group was given up.
    broken: AtomicBool,
    /// Groups that are not left.
    groups: AtomicU32,
    /// Whether it is asked to stop.
    services: Arc<dyn Services>,
}

static PROCESS: OnceLock<Result<Process>> = OnceLock::new();

/// This process, which joins MPI on the first call.
///
/// # Errors
/// `DEVICE` where MPI does not begin or allows one thread only.
pub fn process(services: &Arc<dyn Services>) -> Result<&'static Process> {
    let process = PROCESS.get_or_init(|| begin(Arc::clone(services)));
    process.as_ref().map_err(Clone::clone)
}

fn begin(services: Arc<dyn Services>) -> Result<Process> {
    let failed = |what: &str| PluginError::new(ErrorCode::DEVICE, format!("MPI: {what}"));
    global_symbols();
    let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Serialized) else {
        return Err(failed("something else in this process has begun it"));
    };
    // Dropped, it would end MPI: that is done at exit, and not where a group was given up.
    std::mem::forget(universe);
    if threading < Threading::Serialized {
        return Err(failed("this build of it allows calls from one thread only"));
    }
    let (mut rank, mut size) = (0, 0);
    // SAFETY: MPI has begun; both addresses are valid.
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

/// Open MPI loads its parts itself and has them look for its symbols among the global ones; a
/// plugin's own are local.
fn global_symbols() {
    let names = [c"libmpi.so.40", c"libmpi.so.12", c"libmpi.so"];
    for name in names {
        // SAFETY: only a library that is open already is found, so no initialiser runs.
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

/// Ends MPI where all processes come to their end in order: it would wait for one that does not.
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
    // SAFETY: MPI has begun and not ended; the request is not freed before the process is gone.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let mut done = 0;
        let mut code = ffi::MPI_Ibarrier(ffi::RSMPI_COMM_WORLD, &mut request);
        // The others may still write what all have made. Where one fails instead, the launcher asks
        // all to stop.
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

    /// A group has this tag.
    pub fn entered(&self, tag: i32) {
        self.next_tag.store(tag + 1, Ordering::Release);
        self.groups.fetch_add(1, Ordering::AcqRel);
    }

    /// A group is left.
    pub fn left(&self) {
        self.groups.fetch_sub(1, Ordering::AcqRel);
    }

    /// A group was given up: nothing is sent or received any more.
    pub fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether one was.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}
