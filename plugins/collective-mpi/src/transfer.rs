//! Messages in progress: started together, tested until all are done or the group is aborted.
#![allow(unsafe_code)] // MPI's own functions, on memory that the host guarantees to be valid.

use std::thread;
use std::time::{Duration, Instant};

use mpi::ffi;

use crate::process::Process;

/// Most bytes of a message: MPI counts in 32 bits.
const MESSAGE: usize = 1 << 30;

/// Tests without a pause before the first pause.
const TESTS: u32 = 300;

/// A pause between tests.
const PAUSE: Duration = Duration::from_micros(50);

/// Why messages failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The group was aborted.
    Aborted,
    /// The time limit has passed.
    Late,
    /// MPI returned an error.
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

/// Messages of one tag in progress.
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

    /// Starts to receive `bytes` bytes from process `from`.
    ///
    /// # Safety
    /// The memory is valid for writes and not used elsewhere until [`Transfer::finish`] returns.
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

    /// Starts to send `bytes` bytes to process `to`.
    ///
    /// # Safety
    /// The memory is valid for reads and not written until [`Transfer::finish`] returns.
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
    /// [`Stopped`], where the group is aborted, `until` has passed, or MPI fails. Pending receives
    /// are cancelled then.
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
            // SAFETY: requests made by MPI, which sets finished ones to null.
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

    /// Cancels pending receives: no message is written into memory that is about to be freed.
    fn stop(&mut self, why: Stopped) -> Stopped {
        let _turn = self.process.turn();
        for request in &mut self.receives {
            // SAFETY: a request made by MPI that is not finished, as finished ones are null.
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

/// MPI's message for a code.
fn text(code: i32) -> String {
    let mut text = vec![0u8; 4096];
    let mut length = 0;
    // SAFETY: the buffer is longer than any MPI's messages.
    let found = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    match found {
        0 => String::from_utf8_lossy(&text[..length as usize]).into_owned(),
        _ => format!("code {code}"),
    }
}
