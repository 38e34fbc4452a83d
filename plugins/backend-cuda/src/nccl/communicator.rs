//! A member's end of a communicator of NCCL: calls that do not block, and their failures.
#![allow(unsafe_code)] // Calls of NCCL.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{ncclComm_t, ncclConfig_t};
use espalier_interface::{ErrorCode, LogLevel, PluginError, Result, Services};

use super::place::Place;
use crate::card::Card;
use crate::functions::Nccl;
use crate::lost_groups::{self, GroupId};

/// `ncclResult_t`: done, wrongly used, another process is lost, under way.
const SUCCESS: u32 = 0;
const INVALID_USAGE: u32 = 5;
const REMOTE_ERROR: u32 = 6;
const IN_PROGRESS: u32 = 7;

/// `NCCL_API_MAGIC` and `NCCL_CONFIG_UNDEF_INT` of `nccl.h`.
const MAGIC: u32 = 0xcafe_beef;
const UNSET: c_int = c_int::MIN;

/// The version of `nccl.h` whose configuration is passed, 2.18.0: newer libraries fill in what it
/// lacks.
const CONFIG_VERSION: u32 = 21800;

/// The shortest pause between two questions whether a call is under way, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// The pause between two looks for a failure that NCCL found by itself.
const LOOK: Duration = Duration::from_millis(100);

/// How long the end of a communicator may take. NCCL can wait there for ever (NCCL issue 549).
const END: Duration = Duration::from_secs(5);

/// NCCL's handle, which one thread at a time uses.
struct Raw(ncclComm_t);

// SAFETY: NCCL's communicators may be used from any thread.
unsafe impl Send for Raw {}

/// A member's end of a communicator.
pub struct Communicator {
    library: &'static Nccl,
    card: Arc<Card>,
    name: String,
    id: GroupId,
    services: Arc<dyn Services>,
    /// None once it ended.
    raw: Mutex<Option<Raw>>,
    /// Set before it is ended because it failed or was given up.
    is_lost: AtomicBool,
}

/// Whether a call that gave `code` is done or under way.
pub fn is_sound(code: u32) -> bool {
    matches!(code, SUCCESS | IN_PROGRESS)
}

/// The result of a call of NCCL that is of no communicator.
///
/// # Errors
/// `DEVICE` with NCCL's words.
pub fn called(library: &Nccl, what: &str, code: u32) -> Result<()> {
    match code {
        SUCCESS => Ok(()),
        code => Err(failure(library, null_mut(), what, code)),
    }
}

/// The error of a call that gave `code`, with NCCL's words.
fn failure(library: &Nccl, raw: ncclComm_t, what: &str, code: u32) -> PluginError {
    // SAFETY: NCCL gives texts that end with a zero and stay, or none.
    let [words, last] = unsafe { [(library.words)(code), (library.last_words)(raw)] };
    let text = |of: *const c_char| {
        // SAFETY: as above.
        let text = (!of.is_null()).then(|| unsafe { CStr::from_ptr(of) });
        text.map(|text| text.to_string_lossy().trim().to_owned())
    };
    let words = text(words).unwrap_or_else(|| format!("error {code}"));
    let last = text(last).filter(|last| !last.is_empty());
    let last = last.map_or(String::new(), |last| format!(" ({last})"));
    let code = match code {
        REMOTE_ERROR => ErrorCode::PEER,
        _ => ErrorCode::DEVICE,
    };
    PluginError::new(code, format!("NCCL: {what}: {words}{last}"))
}

impl Communicator {
    /// Joins a group, and returns when all of its members have joined.
    ///
    /// # Errors
    /// `PEER` where members did not join in time; `DEVICE` where NCCL refuses, with its words.
    pub fn join(
        library: &'static Nccl,
        card: &Arc<Card>,
        place: &Place,
        services: &Arc<dyn Services>,
    ) -> Result<Arc<Self>> {
        let mut config = ncclConfig_t {
            size: size_of::<ncclConfig_t>(),
            magic: MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cgaClusterSize: UNSET,
            minCTAs: UNSET,
            maxCTAs: UNSET,
            netName: std::ptr::null(),
            splitShare: UNSET,
        };
        // NCCL takes the card whose context is this thread's.
        card.enter()?;
        let (mut raw, members) = (null_mut(), place.members as c_int);
        // SAFETY: NCCL reads the configuration within the call, and writes a handle.
        let code = unsafe {
            (library.join)(
                &raw mut raw,
                members,
                place.id,
                place.member,
                &raw mut config,
            )
        };
        let communicator = Arc::new(Communicator {
            library,
            card: card.clone(),
            name: place.group.clone(),
            id: GroupId::new(),
            services: services.clone(),
            raw: Mutex::new((!raw.is_null()).then_some(Raw(raw))),
            is_lost: AtomicBool::new(false),
        });
        let joined = communicator.settle("join", code, Some(place.timeout));
        joined.map_err(|error| {
            communicator.lose(error.clone());
            lost_groups::forget(communicator.id);
            communicator.refused(error, place)
        })?;
        let weak = Arc::downgrade(&communicator);
        let looking = thread::Builder::new().name("nccl-errors".to_owned());
        let looking = looking.spawn(move || look_for_failures(&weak));
        looking.map_err(|why| {
            let what = format!("no thread looks for failures: {why}");
            PluginError::new(ErrorCode::DEVICE, communicator.of_group(&what))
        })?;
        Ok(communicator)
    }

    /// The error of a join, with what to do.
    fn refused(&self, mut error: PluginError, place: &Place) -> PluginError {
        if error.code == ErrorCode::INVALID {
            error.code = ErrorCode::DEVICE;
            error.message += &format!(
                "; this rank has card {}: NCCL takes one rank a card (from 2.30 on several, with NCCL_MULTI_RANK_GPU_ENABLE=1): name a card for each rank by run.devices, or leave run.device_collective out, and ranks of one card are joined through the host's memory",
                place.card
            );
        }
        error
    }

    /// The card.
    pub fn card(&self) -> &Arc<Card> {
        &self.card
    }

    /// NCCL's functions.
    pub fn library(&self) -> &'static Nccl {
        self.library
    }

    /// Puts the calls that `put` makes on their streams, as one. They are there on return.
    ///
    /// # Errors
    /// `PEER` once the group is lost; the error that NCCL has.
    pub fn together(&self, what: &str, put: impl FnOnce(ncclComm_t) -> u32) -> Result<()> {
        self.card.enter()?;
        let code = {
            let held = self.held();
            let raw = held.as_ref().ok_or_else(|| self.given_up())?.0;
            // SAFETY: calls between the two are of this thread, and the handle lives while it is
            // held.
            let codes = unsafe { [(self.library.begin)(), put(raw), (self.library.end)()] };
            let wrong = codes.into_iter().find(|code| !is_sound(*code));
            wrong.unwrap_or(codes[2])
        };
        self.settle(what, code, None)
    }

    /// Waits until a call is no more under way that gave `code`.
    fn settle(&self, what: &str, mut code: u32, timeout: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        loop {
            let held = self.held();
            let Some(raw) = held
                .as_ref()
                .filter(|_| !self.is_lost.load(Ordering::SeqCst))
            else {
                return match code {
                    SUCCESS | IN_PROGRESS => Err(self.given_up()),
                    code => Err(self.failure(null_mut(), what, code)),
                };
            };
            if code == IN_PROGRESS {
                // SAFETY: the handle lives while it is held; NCCL writes a code.
                let asked = unsafe { (self.library.state)(raw.0, &raw mut code) };
                code = if asked == SUCCESS { code } else { asked };
            }
            match code {
                SUCCESS => return Ok(()),
                IN_PROGRESS => (),
                code => {
                    let error = self.failure(raw.0, what, code);
                    drop(held);
                    return Err(error);
                }
            }
            drop(held);
            let waited = begun.elapsed();
            if let Some(timeout) = timeout.filter(|timeout| waited >= *timeout) {
                let secs = timeout.as_secs();
                let what = format!("not all members joined within {secs} s");
                return Err(PluginError::new(ErrorCode::PEER, self.of_group(&what)));
            }
            thread::sleep((waited / 32).clamp(PAUSES[0], PAUSES[1]));
        }
    }

    fn failure(&self, raw: ncclComm_t, what: &str, code: u32) -> PluginError {
        let error = failure(self.library, raw, what, code);
        let words = error.message.replacen("NCCL: ", "", 1);
        let kind = match code {
            INVALID_USAGE => ErrorCode::INVALID,
            _ => error.code,
        };
        PluginError::new(kind, self.of_group(&words))
    }

    fn of_group(&self, what: &str) -> String {
        format!("NCCL: group `{}`: {what}", self.name)
    }

    /// Why the group is lost.
    fn given_up(&self) -> PluginError {
        if let Err(error) = lost_groups::check(self.card.index) {
            return error;
        }
        let what = self.of_group("it was given up while its members called together");
        PluginError::new(ErrorCode::PEER, what)
    }

    /// The failure that NCCL found by itself, behind calls that were put on streams.
    fn found(&self) -> Option<PluginError> {
        let held = self.held();
        let raw = held.as_ref()?.0;
        let mut code = SUCCESS;
        // SAFETY: the handle lives while it is held; NCCL writes a code.
        let asked = unsafe { (self.library.state)(raw, &raw mut code) };
        let code = if asked == SUCCESS { code } else { asked };
        let what = "a call on a stream";
        (!is_sound(code)).then(|| self.failure(raw, what, code))
    }

    /// Gives the group up: calls that wait return, and streams report it.
    pub fn give_up(self: &Arc<Self>) {
        self.lose(self.given_up());
    }

    /// Ends a group that failed. Its kernels end without results, so the card's streams report the
    /// failure from before on.
    fn lose(self: &Arc<Self>, error: PluginError) {
        if self.is_lost.swap(true, Ordering::SeqCst) {
            return;
        }
        // What a rank waits for is other ranks' doing.
        let error = PluginError::new(ErrorCode::PEER, error.message);
        lost_groups::report(self.card.index, self.id, error);
        let own = self.clone();
        // NCCL may wait there for ever.
        let abort = move || own.end(own.library.abort);
        let ending = thread::Builder::new().name("nccl-abort".to_owned());
        if let Err(why) = ending.spawn(abort) {
            let what = self.of_group(&format!("no thread ends it: {why}"));
            self.services.log(LogLevel::WARN, &what);
        }
    }

    fn end(&self, by: unsafe extern "C" fn(ncclComm_t) -> u32) {
        let raw = self.held().take();
        if let Some(raw) = raw
            && self.card.enter().is_ok()
        {
            // SAFETY: nobody else has the handle any more. An error is one of earlier work.
            unsafe { by(raw.0) };
        }
    }

    /// Leaves the group. All work on streams is done, unless it is lost.
    pub fn leave(self: &Arc<Self>) {
        if !self.is_lost.load(Ordering::SeqCst) {
            let (own, (ended, end)) = (self.clone(), mpsc::channel());
            let destroy = move || {
                own.end(own.library.destroy);
                let _ = ended.send(());
            };
            if thread::Builder::new().spawn(destroy).is_err() || end.recv_timeout(END).is_err() {
                let what = self.of_group("it does not end, and is left behind");
                self.services.log(LogLevel::WARN, &what);
            }
        }
        lost_groups::forget(self.id);
    }

    // A panic while the lock is held leaves the handle whole.
    fn held(&self) -> MutexGuard<'_, Option<Raw>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for failures of a communicator until it ended.
fn look_for_failures(of: &Weak<Communicator>) {
    loop {
        thread::sleep(LOOK);
        let Some(communicator) = of.upgrade() else {
            return;
        };
        if communicator.held().is_none() {
            return;
        }
        if let Some(error) = communicator.found() {
            communicator.services.log(LogLevel::WARN, &error.message);
            communicator.lose(error);
            return;
        }
    }
}
