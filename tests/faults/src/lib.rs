//! Preloaded into a program, makes one of its calls to the operating system fail: the one that the
//! environment names (`plan.rs`). Every call is counted in the order in which the program makes them.
//!
//! The wrappers have the C library's names, so nothing may link this crate: it is preloaded.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

mod plan;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, iovec, mode_t, off64_t, size_t, ssize_t};
use plan::{Verdict, is_on, judge};

/// Defines a wrapper: the C library's function of that name, called where the verdict on it is to pass.
macro_rules! wrapper {
    ($name:literal fn $function:ident($($argument:ident: $type:ty),*) -> $result:ty,
     $fails:expr, $verdict:expr) => {
        /// The C library's function, unless it is to fail.
        ///
        /// # Safety
        /// That of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function($($argument: $type),*) -> $result {
            static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            type Real = unsafe extern "C" fn($($type),*) -> $result;
            let name: &CStr = $name;
            // SAFETY: the next definition of this name is the C library's, which has this type.
            let real: Real = unsafe { std::mem::transmute(next(&REAL, name)) };
            let verdict = match is_on() {
                true => $verdict(name),
                false => Verdict::Pass,
            };
            match verdict {
                // SAFETY: the caller's own arguments.
                Verdict::Pass | Verdict::Short => unsafe { real($($argument),*) },
                Verdict::Fail(errno) => fail(errno, $fails),
            }
        }
    };
}

wrapper!(c"open" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1,
    |name| judge(name, text(path), flags & libc::O_CREAT != 0));
wrapper!(c"open64" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1,
    |name| judge(name, text(path), flags & libc::O_CREAT != 0));
wrapper!(c"openat64" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
    -1, |name| judge(name, &below(at, path), flags & libc::O_CREAT != 0));
wrapper!(c"opendir" fn opendir(path: *const c_char) -> *mut DIR, std::ptr::null_mut(),
    |name| judge(name, text(path), false));
wrapper!(c"mkdir" fn mkdir(path: *const c_char, mode: mode_t) -> c_int, -1,
    |name| judge(name, text(path), true));
wrapper!(c"rename" fn rename(from: *const c_char, to: *const c_char) -> c_int, -1,
    |name| judge(name, text(from), false));
wrapper!(c"renameat2" fn renameat2(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char,
    flags: c_uint) -> c_int, -1, |name| judge(name, &below(at, from), false));
wrapper!(c"unlink" fn unlink(path: *const c_char) -> c_int, -1,
    |name| judge(name, text(path), false));
wrapper!(c"unlinkat" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int, -1,
    |name| judge(name, &below(at, path), false));
wrapper!(c"rmdir" fn rmdir(path: *const c_char) -> c_int, -1,
    |name| judge(name, text(path), false));
wrapper!(c"fsync" fn fsync(file: c_int) -> c_int, -1, |name| judge(name, &path_of(file), false));
wrapper!(c"fdatasync" fn fdatasync(file: c_int) -> c_int, -1,
    |name| judge(name, &path_of(file), false));
wrapper!(c"ftruncate64" fn ftruncate64(file: c_int, length: off64_t) -> c_int, -1,
    |name| judge(name, &path_of(file), true));
wrapper!(c"read" fn read(file: c_int, bytes: *mut c_void, count: size_t) -> ssize_t, -1,
    |name| judge(name, &path_of(file), false));
wrapper!(c"pread64" fn pread64(file: c_int, bytes: *mut c_void, count: size_t, offset: off64_t)
    -> ssize_t, -1, |name| judge(name, &up_to(file, count, offset), false));
wrapper!(c"writev" fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t, -1,
    |name| judge(name, &path_of(file), true));

/// As the others; a short write takes the first half.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    type Real = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    // SAFETY: the next definition of this name is the C library's, which has this type.
    let real: Real = unsafe { std::mem::transmute(next(&REAL, c"write")) };
    let verdict = match is_on() {
        true => judge(c"write", &path_of(file), true),
        false => Verdict::Pass,
    };
    match verdict {
        // SAFETY: the caller's own arguments.
        Verdict::Pass => unsafe { real(file, bytes, count) },
        // SAFETY: the first bytes of the caller's own.
        Verdict::Short => unsafe { real(file, bytes, count.div_ceil(2)) },
        Verdict::Fail(errno) => fail(errno, -1),
    }
}

/// As the others; the file is closed even where that is said to have failed, as Linux does it.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(file: c_int) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the next definition of this name is the C library's, which has this type.
    let real: unsafe extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(next(&REAL, c"close")) };
    let verdict = match is_on() {
        true => judge(c"close", &path_of(file), false),
        false => Verdict::Pass,
    };
    // SAFETY: the caller's own argument.
    let closed = unsafe { real(file) };
    match verdict {
        Verdict::Fail(errno) => fail(errno, -1),
        _ => closed,
    }
}

/// The definition of `name` behind this library's, looked up once.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut real = known.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: the name ends in NUL.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        assert!(!real.is_null(), "the C library lacks {name:?}");
        known.store(real, Ordering::Release);
    }
    real
}

fn fail<T>(errno: c_int, result: T) -> T {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    result
}

fn text<'a>(path: *const c_char) -> &'a [u8] {
    // SAFETY: a path given to the operating system ends in NUL and outlives the call.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// The path of an open file; empty where it has none.
fn path_of(file: c_int) -> Vec<u8> {
    let link = format!("/proc/self/fd/{file}\0");
    let mut path = vec![0_u8; 4096];
    let (start, length) = (path.as_mut_ptr().cast(), path.len());
    // SAFETY: `link` ends in NUL, `path` has `length` bytes.
    let found = unsafe { libc::readlink(link.as_ptr().cast(), start, length) };
    path.truncate(usize::try_from(found).unwrap_or(0));
    path
}

/// The path of an open file, and behind an `@` the end of what is read there.
fn up_to(file: c_int, count: size_t, offset: off64_t) -> Vec<u8> {
    let end = offset.saturating_add_unsigned(count as u64);
    let mut path = path_of(file);
    path.extend_from_slice(format!("@{end}").as_bytes());
    path
}

/// A path that may be relative to an open directory.
fn below(at: c_int, path: *const c_char) -> Vec<u8> {
    let path = text(path);
    match path.first() {
        Some(b'/') => path.to_vec(),
        _ => [path_of(at).as_slice(), b"/", path].concat(),
    }
}
