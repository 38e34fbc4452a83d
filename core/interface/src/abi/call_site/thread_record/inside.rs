//! The call that a thread is in. Its thread writes it without a lock or an atomic addition; another
//! thread that reads it while it is written reads again (a sequence lock, as in Linux).

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread;

use super::ThreadRecord;
use crate::abi::call_site::{Call, CallSite};

/// A call, and what the record of its thread knows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub call: Call,
    /// Number of the call, among those of its thread.
    pub number: u64,
    /// How many subjects the thread had when it entered the call.
    pub subjects: usize,
}

/// Holds the [`Inside`] of a thread, or none.
#[derive(Debug, Default)]
pub(super) struct InsideCell {
    /// Odd while the thread writes.
    version: AtomicU64,
    /// Null where the thread is in no call.
    site: AtomicPtr<CallSite>,
    callback: AtomicPtr<u8>,
    callback_length: AtomicUsize,
    depth: AtomicU32,
    number: AtomicU64,
    subjects: AtomicUsize,
}

impl InsideCell {
    /// Writes. Only the thread of the record may do so.
    #[inline]
    pub fn set(&self, inside: Option<Inside>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // Who reads a later field reads the odd version.
        fence(Ordering::Release);
        match inside {
            None => self.site.store(ptr::null_mut(), Ordering::Relaxed),
            Some(inside) => self.store(inside),
        }
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    #[inline]
    fn store(&self, inside: Inside) {
        let Call {
            site,
            callback,
            depth,
            // The record that holds this cell.
            record: _,
        } = inside.call;
        let order = Ordering::Relaxed;
        self.site.store(ptr::from_ref(site).cast_mut(), order);
        self.callback.store(callback.as_ptr().cast_mut(), order);
        self.callback_length.store(callback.len(), order);
        self.depth.store(depth, order);
        self.number.store(inside.number, order);
        self.subjects.store(inside.subjects, order);
    }

    /// What the thread of `record`, which holds this cell, has written last.
    #[inline]
    pub fn own(&self, record: &'static ThreadRecord) -> Option<Inside> {
        // SAFETY: no other thread writes, so all fields are of one `set`.
        unsafe { self.fields().inside(record) }
    }

    /// What is written, from any thread. `record` holds this cell.
    pub fn read(&self, record: &'static ThreadRecord) -> Option<Inside> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let fields = self.fields();
            // The fields are read before the version is read again.
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                // SAFETY: nothing was written in between, so all fields are of one `set`.
                return unsafe { fields.inside(record) };
            }
            thread::yield_now();
        }
    }

    #[inline]
    fn fields(&self) -> Fields {
        let order = Ordering::Relaxed;
        Fields {
            site: self.site.load(order),
            callback: self.callback.load(order),
            callback_length: self.callback_length.load(order),
            depth: self.depth.load(order),
            number: self.number.load(order),
            subjects: self.subjects.load(order),
        }
    }
}

/// The fields of an [`InsideCell`], which may be of different writes.
struct Fields {
    site: *const CallSite,
    callback: *const u8,
    callback_length: usize,
    depth: u32,
    number: u64,
    subjects: usize,
}

impl Fields {
    /// # Safety
    /// All fields are of one [`InsideCell::set`].
    #[inline]
    unsafe fn inside(self, record: &'static ThreadRecord) -> Option<Inside> {
        // SAFETY: null, or from a `&'static CallSite`.
        let site = unsafe { self.site.as_ref() }?;
        // SAFETY: pointer and length are of one `&'static str`.
        let callback = unsafe {
            let bytes = std::slice::from_raw_parts(self.callback, self.callback_length);
            std::str::from_utf8_unchecked(bytes)
        };
        let call = Call {
            site,
            callback,
            record,
            depth: self.depth,
        };
        Some(Inside {
            call,
            number: self.number,
            subjects: self.subjects,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reader_never_sees_parts_of_two_calls() {
        let record: &'static ThreadRecord = Box::leak(Box::default());
        let calls = [("launch", 1), ("initialise_workspace", 2)].map(|(callback, depth)| Call {
            site: CallSite::new(callback, None),
            callback,
            record,
            depth,
        });
        let done = Arc::new(AtomicBool::new(false));
        let reader = {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let mut seen = [0_u64; 3];
                while !done.load(Ordering::Relaxed) || seen.contains(&0) {
                    let Some(inside) = record.inside.read(record) else {
                        seen[0] += 1;
                        continue;
                    };
                    let Call { site, callback, .. } = inside.call;
                    assert_eq!(site.component(), callback);
                    assert_eq!(u64::from(inside.call.depth), inside.number);
                    assert_eq!(inside.subjects, callback.len());
                    seen[inside.number as usize] += 1;
                }
            })
        };
        for round in 0..u32::MAX {
            let state = round as usize % 3;
            record.inside.set((state > 0).then(|| {
                let call = calls[state - 1];
                Inside {
                    call,
                    number: u64::from(call.depth),
                    subjects: call.callback.len(),
                }
            }));
            done.store(round > 100_000, Ordering::Relaxed);
            if reader.is_finished() {
                break;
            }
        }
        reader.join().expect("each state was seen whole");
    }
}
