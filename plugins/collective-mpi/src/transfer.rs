//! Messages under way: begun together, tested until all are done or the group is given up.
#![allow(unsafe_code)] // MPI's own functions, on memory that the host vouches for.

use std::thread;
use std::time::{Duration, Instant};

use mpi::ffi;

use crate::process::Process;

/// Bytes of a message at most: MPI counts in 32 bits.
const MESSAGE: usize = 1 << 30;

/// Tests without a pause before the first pause.
const TESTS: u32 = 300;

/// A pause between tests.
const PAUSE: Duration = Duration::from_micros(50);

/// Why messages did not come through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The group was given up.
    Aborted,
    /// The time is over.
    Late,
    /// MPI says no.
    Failed(String),
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stopped::Aborted => f.write_str("it was given up while its members called together"),
            Stopped::Late => f.write_str("not all of its members came in time"),
            Stopped::Failed(message) => write!(f, "MPI failed: {message}"),
        }
    }
}

/// Messages of one tag that are under way.
pub struct Transfer<'a> {
    process: &'a Process,
    tag: i32,
    requests: Vec<ffi::MPI_Request>,
    receives: Vec<ffi::MPI_Request>,
    failed: Option<i32>,
}

impl<'a> Transfer<'a> {
    /// No message yet.
    pub fn new(process: &'a Process, tag: i32) -> Self {
        Transfer {
            process,
            tag,
            requests: Vec::new(),
            receives: Vec::new(),
            failed: None,
        }
    }

    /// Begins to receive `bytes` bytes from process `from`.
    ///
    /// # Safety
    /// The memory is valid for writes and used by nobody else until [`Transfer::finish`] returns.
    pub unsafe fn receive(&mut self, from: u32, to: *mut u8, bytes: usize) {
        for start in (0..bytes).step_by(MESSAGE) {
            let count = MESSAGE.min(bytes - start) as i32;
            let _turn = self.process.turn();
            // SAFETY: within the caller's memory.
            let (code, request) = unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let to = to.add(start).cast();
                let (kind, world) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_COMM_WORLD);
                let code =
                    ffi::MPI_Irecv(to, count, kind, from as i32, self.tag, world, &mut request);
                (code, request)
            };
            self.receives.push(request);
            self.note(code);
        }
    }

    /// Begins to send `bytes` bytes to process `to`.
    ///
    /// # Safety
    /// The memory is valid for reads and written by nobody until [`Transfer::finish`] returns.
    pub unsafe fn send(&mut self, to: u32, from: *const u8, bytes: usize) {
        for start in (0..bytes).step_by(MESSAGE) {
            let count = MESSAGE.min(bytes - start) as i32;
            let _turn = self.process.turn();
            // SAFETY: within the caller's memory.
            let (code, request) = unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let from = from.add(start).cast();
                let (kind, world) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_COMM_WORLD);
                let code =
                    ffi::MPI_Isend(from, count, kind, to as i32, self.tag, world, &mut request);
                (code, request)
            };
            self.requests.push(request);
            self.note(code);
        }
    }

    /// Waits until all messages are done.
    ///
    /// # Errors
    /// Where the group is given up, `until` is over, or MPI fails. What was to be received is
    /// cancelled then.
    pub fn finish(mut self, until: Option<Instant>) -> Result<(), Stopped> {
        let mut tests = 0;
        loop {
            if let Some(code) = self.failed {
                return Err(self.stop(Stopped::Failed(text(code))));
            }
            if self.process.is_broken() {
                return Err(self.stop(Stopped::Aborted));
            }
            if self.test() {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(self.stop(Stopped::Late));
            }
            tests += 1;
            match tests > TESTS {
                true => thread::sleep(PAUSE),
                false => thread::yield_now(),
            }
        }
    }

    fn test(&mut self) -> bool {
        let mut all = true;
        for requests in [&mut self.receives, &mut self.requests] {
            let mut done = 0;
            let _turn = self.process.turn();
            // SAFETY: requests that MPI made; those that are done it sets to null.
            let code = unsafe {
                ffi::MPI_Testall(
                    requests.len() as i32,
                    requests.as_mut_ptr(),
                    &mut done,
                    ffi::RSMPI_STATUSES_IGNORE,
                )
            };
            if code != 0 {
                self.failed = Some(code);
                return false;
            }
            all &= done != 0;
        }
        all
    }

    fn note(&mut self, code: i32) {
        if code != 0 {
            self.failed.get_or_insert(code);
        }
    }

    /// Cancels what was to be received: nothing is written into memory that is about to go.
    fn stop(&mut self, why: Stopped) -> Stopped {
        let _turn = self.process.turn();
        for request in &mut self.receives {
            // SAFETY: a request that MPI made and that is not done, for done ones are null.
            unsafe {
                if *request != ffi::RSMPI_REQUEST_NULL {
                    ffi::MPI_Cancel(request);
                    ffi::MPI_Request_free(request);
                }
            }
        }
        why
    }
}

/// MPI's words for a code.
fn text(code: i32) -> String {
    let mut text = vec![0u8; 4096];
    let mut length = 0;
    // SAFETY: no MPI has longer words.
    let found = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    match found {
        0 => String::from_utf8_lossy(&text[..length as usize]).into_owned(),
        _ => format!("code {code}"),
    }
}
