//! Preloaded into a program, makes one of its system calls fail: the one that the environment names
//! (`plan.rs`). Calls are counted in the order in which the program makes them. Calls that change
//! files can be recorded with their data (`record.rs`).
//!
//! The wrappers have the C library's names, so nothing may link this crate: it is preloaded.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

mod plan;
mod planted;
mod record;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, iovec, mode_t, off64_t, size_t, ssize_t};
use plan::{Action, decide, is_on};
use record::{CREATES, Change, changed, in_order, moved};

/// Defines a wrapper: the C library's function of that name, called if the action for it is to
/// pass.
macro_rules! wrapper {
    ($name:literal fn $function:ident($($argument:ident: $type:ty),*) -> $result:ty,
     $fails:expr, $action:expr $(, then $change:expr)?) => {
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
            let action = match is_on() {
                true => $action(name),
                false => Action::Pass,
            };
            match action {
                Action::Pass | Action::Short => {
                    let _order = in_order();
                    // SAFETY: the caller's own arguments.
                    let result = unsafe { real($($argument),*) };
                    $(if _order.is_some() && result != $fails {
                        keeping_errno(|| $change(result));
                    })?
                    result
                }
                Action::Fail(errno) => fail(errno, $fails),
            }
        }
    };
}

wrapper!(c"open" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1,
    |name| decide(name, text(path), flags & libc::O_CREAT != 0),
    then |file| opened(file, flags));
wrapper!(c"open64" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, -1,
    |name| decide(name, text(path), flags & libc::O_CREAT != 0),
    then |file| opened(file, flags));
wrapper!(c"openat64" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
    -1, |name| decide(name, &below(at, path), flags & libc::O_CREAT != 0),
    then |file| opened(file, flags));
wrapper!(c"opendir" fn opendir(path: *const c_char) -> *mut DIR, std::ptr::null_mut(),
    |name| decide(name, text(path), false));
wrapper!(c"mkdir" fn mkdir(path: *const c_char, mode: mode_t) -> c_int, -1,
    |name| decide(name, text(path), true),
    then |_| changed(&Change::of(b"mkdir", &below(libc::AT_FDCWD, path))));
wrapper!(c"link" fn link(from: *const c_char, to: *const c_char) -> c_int, -1,
    |name| decide(name, text(to), true),
    then |_| moved(b"link", &below(libc::AT_FDCWD, from), &below(libc::AT_FDCWD, to), 0));
wrapper!(c"linkat" fn linkat(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char,
    flags: c_int) -> c_int, -1, |name| decide(name, &below(to_at, to), true),
    then |_| moved(b"link", &below(at, from), &below(to_at, to), 0));
wrapper!(c"symlink" fn symlink(content: *const c_char, path: *const c_char) -> c_int, -1,
    |name| decide(name, text(path), true),
    then |_| changed(&Change::of(b"unmodelled symlink", &below(libc::AT_FDCWD, path))));
wrapper!(c"renameat" fn renameat(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char)
    -> c_int, -1, |name| decide(name, &below(at, from), false),
    then |_| moved(b"rename", &below(at, from), &below(to_at, to), 0));
wrapper!(c"renameat2" fn renameat2(at: c_int, from: *const c_char, to_at: c_int, to: *const c_char,
    flags: c_uint) -> c_int, -1, |name| decide(name, &below(at, from), false),
    then |_| moved(b"rename", &below(at, from), &below(to_at, to), flags.into()));
wrapper!(c"unlink" fn unlink(path: *const c_char) -> c_int, -1,
    |name| decide(name, text(path), false),
    then |_| changed(&Change::of(b"unlink", &below(libc::AT_FDCWD, path))));
wrapper!(c"unlinkat" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int, -1,
    |name| decide(name, &below(at, path), false),
    then |_| changed(&Change::of(b"unlink", &below(at, path))));
wrapper!(c"rmdir" fn rmdir(path: *const c_char) -> c_int, -1,
    |name| decide(name, text(path), false),
    then |_| changed(&Change::of(b"unlink", &below(libc::AT_FDCWD, path))));
wrapper!(c"fdatasync" fn fdatasync(file: c_int) -> c_int, -1,
    |name| decide(name, &path_of(file), false),
    then |_| changed(&Change::of(b"fsync", &path_of(file))));
wrapper!(c"ftruncate64" fn ftruncate64(file: c_int, length: off64_t) -> c_int, -1,
    |name| decide(name, &path_of(file), true),
    then |_| changed(&Change { at: length, ..Change::of(b"truncate", &path_of(file)) }));
wrapper!(c"fallocate64" fn fallocate64(file: c_int, mode: c_int, offset: off64_t, length: off64_t)
    -> c_int, -1, |name| decide(name, &path_of(file), true),
    then |_| changed(&Change { at: offset + length, ..Change::of(b"extend", &path_of(file)) }));
wrapper!(c"read" fn read(file: c_int, bytes: *mut c_void, count: size_t) -> ssize_t, -1,
    |name| decide(name, &path_of(file), false));
wrapper!(c"pread64" fn pread64(file: c_int, bytes: *mut c_void, count: size_t, offset: off64_t)
    -> ssize_t, -1, |name| decide(name, &up_to(file, count, offset), false));
wrapper!(c"pwrite64" fn pwrite64(file: c_int, bytes: *const c_void, count: size_t, offset: off64_t)
    -> ssize_t, -1, |name| decide(name, &path_of(file), true),
    then |written| wrote(file, offset, written));
wrapper!(c"writev" fn writev(file: c_int, parts: *const iovec, count: c_int) -> ssize_t, -1,
    |name| decide(name, &path_of(file), true),
    then |written| wrote_here(file, written));
wrapper!(c"copy_file_range" fn copy_file_range(from: c_int, from_at: *mut off64_t, to: c_int,
    to_at: *mut off64_t, length: size_t, flags: c_uint) -> ssize_t, -1,
    |name| decide(name, &path_of(to), true),
    then |written| copied(to, to_at, written));
wrapper!(c"sendfile64" fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t)
    -> ssize_t, -1, |name| decide(name, &path_of(to), true),
    then |written| wrote_here(to, written));
wrapper!(c"mmap" fn mmap(start: *mut c_void, length: size_t, protection: c_int, flags: c_int,
    file: c_int, offset: off64_t) -> *mut c_void, libc::MAP_FAILED, |_| Action::Pass,
    then |_| mapped(file, protection, flags));
wrapper!(c"mmap64" fn mmap64(start: *mut c_void, length: size_t, protection: c_int, flags: c_int,
    file: c_int, offset: off64_t) -> *mut c_void, libc::MAP_FAILED, |_| Action::Pass,
    then |_| mapped(file, protection, flags));

/// Like the others; a bug planted by the environment can delay a file's rename until that of its
/// directory.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    type Real = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
    // SAFETY: the next definition of this name is the C library's, which has this type.
    let real: Real = unsafe { std::mem::transmute(next(&REAL, c"rename")) };
    if !is_on() {
        // SAFETY: the caller's own arguments.
        return unsafe { real(from, to) };
    }
    if let Action::Fail(errno) = decide(c"rename", text(from), false) {
        return fail(errno, -1);
    }
    let order = in_order();
    if planted::holds_back(text(from), text(to)) {
        return 0;
    }
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(from, to) };
    if result == 0 {
        let (from, to) = (below(libc::AT_FDCWD, from), below(libc::AT_FDCWD, to));
        if order.is_some() {
            moved(b"rename", &from, &to, 0);
        }
        if let Some((from, to)) = planted::held_back(&from, &to) {
            // SAFETY: both end in NUL.
            unsafe { real(from.as_ptr(), to.as_ptr()) };
            moved(b"rename", from.to_bytes(), to.to_bytes(), 0);
        }
    }
    result
}

/// Like the others; a bug planted by the environment can skip directories.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the next definition of this name is the C library's, which has this type.
    let real: unsafe extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(next(&REAL, c"fsync")) };
    if !is_on() {
        // SAFETY: the caller's own argument.
        return unsafe { real(file) };
    }
    let path = path_of(file);
    if let Action::Fail(errno) = decide(c"fsync", &path, false) {
        return fail(errno, -1);
    }
    if planted::leaves_unsynced(file) {
        return 0;
    }
    let order = in_order();
    // SAFETY: the caller's own argument.
    let result = unsafe { real(file) };
    if order.is_some() && result == 0 {
        changed(&Change::of(b"fsync", &path));
    }
    result
}

/// Like the others; a short write takes the first half.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    type Real = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    // SAFETY: the next definition of this name is the C library's, which has this type.
    let real: Real = unsafe { std::mem::transmute(next(&REAL, c"write")) };
    let action = if is_on() {
        decide(c"write", &path_of(file), true)
    } else {
        Action::Pass
    };
    let count = match action {
        Action::Pass => count,
        Action::Short => count.div_ceil(2),
        Action::Fail(errno) => return fail(errno, -1),
    };
    let order = in_order();
    // SAFETY: the caller's own bytes, or the first of them.
    let written = unsafe { real(file, bytes, count) };
    if order.is_some() && written > 0 {
        keeping_errno(|| wrote_here(file, written));
    }
    written
}

/// Like the others; the file is closed even if the call reports failure, as on Linux.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(file: c_int) -> c_int {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the next definition of this name is the C library's, which has this type.
    let real: unsafe extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(next(&REAL, c"close")) };
    let action = if is_on() {
        decide(c"close", &path_of(file), false)
    } else {
        Action::Pass
    };
    // SAFETY: the caller's own argument.
    let closed = unsafe { real(file) };
    match action {
        Action::Fail(errno) => fail(errno, -1),
        _ => closed,
    }
}

/// The next definition of `name` after this library's, looked up once.
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

/// Records that a file was created or emptied.
fn opened(file: c_int, flags: c_int) {
    if flags & CREATES != 0 {
        changed(&Change {
            at: flags.into(),
            ..Change::of(b"open", &path_of(file))
        });
    }
}

/// Records `written` bytes that end at the file's position.
fn wrote_here(file: c_int, written: ssize_t) {
    // SAFETY: it asks for the position and leaves it.
    let end = unsafe { libc::lseek64(file, 0, libc::SEEK_CUR) };
    if end >= 0 {
        wrote(file, end - written as off64_t, written);
    }
}

fn copied(to: c_int, to_at: *const off64_t, written: ssize_t) {
    // SAFETY: the caller's own place, which the call has moved on, where there is one.
    match unsafe { to_at.as_ref() } {
        Some(end) => wrote(to, end - written as off64_t, written),
        None => wrote_here(to, written),
    }
}

/// Records `written` bytes at `offset`, read back from the file.
fn wrote(file: c_int, offset: off64_t, written: ssize_t) {
    let path = path_of(file);
    if written > 0 && record::concerns(&path) {
        let bytes = record::read_back(file, offset, written);
        changed(&Change {
            at: offset,
            bytes: &bytes,
            ..Change::of(b"write", &path)
        });
    }
}

fn mapped(file: c_int, protection: c_int, flags: c_int) {
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if file >= 0 && shared && protection & libc::PROT_WRITE != 0 {
        changed(&Change::of(b"unmodelled mmap", &path_of(file)));
    }
}

/// Runs `work` after a call and keeps errno, which the caller may read.
fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: the address of this thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    work();
    fail(errno, ());
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

/// The path of an open file; empty if it has none.
fn path_of(file: c_int) -> Vec<u8> {
    let link = CString::new(format!("/proc/self/fd/{file}")).expect("no NUL");
    path_at(&link)
}

/// The target of a link.
fn path_at(link: &CStr) -> Vec<u8> {
    let mut path = vec![0_u8; 4096];
    let (start, length) = (path.as_mut_ptr().cast(), path.len());
    // SAFETY: `link` ends in NUL, `path` has `length` bytes.
    let found = unsafe { libc::readlink(link.as_ptr(), start, length) };
    path.truncate(usize::try_from(found).unwrap_or(0));
    path
}

/// The path of an open file, followed by `@` and the end of the range read.
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
        _ if at == libc::AT_FDCWD => [path_at(c"/proc/self/cwd").as_slice(), b"/", path].concat(),
        _ => [path_of(at).as_slice(), b"/", path].concat(),
    }
}
