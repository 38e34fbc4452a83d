//! A text in the library's bytes, which tests overwrite -> the fault at a place.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `PLACE:FAULT`, padded with dots.
const LENGTH: usize = 24;

/// The marker that tests search for, then the fault: none as built.
#[used]
static CHOSEN: [u8; 16 + LENGTH] = *b"espalier-fault: nowhere:none............";

/// Selects the call of the place that fails, counted from 1; 0 for none. Unset: the first.
const CALL: &str = "FAULT_CALL";

/// Possible places of a fault.
#[derive(Clone, Copy)]
pub struct FaultPoint(&'static str);

impl FaultPoint {
    pub const OPEN: FaultPoint = FaultPoint("open");
    pub const ROOT: FaultPoint = FaultPoint("root");
    pub const CREATE: FaultPoint = FaultPoint("create");
    pub const ENCODE: FaultPoint = FaultPoint("encode");
    pub const DECODE: FaultPoint = FaultPoint("decode");
    pub const ADAPT: FaultPoint = FaultPoint("adapt");
    pub const LAUNCH: FaultPoint = FaultPoint("launch");
}

/// Executes the chosen fault at `place`, in the chosen call.
pub fn at(place: FaultPoint) {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static WANTED: OnceLock<u64> = OnceLock::new();
    let text: Vec<u8> = CHOSEN[16..].iter().map(|byte| *black_box(byte)).collect();
    let text = String::from_utf8_lossy(&text);
    let Some((chosen, fault)) = text.trim_end_matches('.').split_once(':') else {
        return;
    };
    if chosen != place.0 {
        return;
    }
    let wanted = WANTED.get_or_init(|| {
        let wanted = std::env::var(CALL);
        wanted.map_or(1, |number| number.parse().expect("a number"))
    });
    if CALLS.fetch_add(1, Ordering::Relaxed) + 1 == *wanted {
        commit(fault);
    }
}

fn commit(fault: &str) {
    match fault {
        // SAFETY: none; nothing is mapped there, and that is the fault.
        "segfault" => unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) },
        "abort" => std::process::abort(),
        "loop" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "exit" => std::process::exit(0),
        "panic" => panic!("a fault by choice"),
        "overflow" => drop(deeper(1)),
        // SAFETY: none; the stack is lost, and that is the fault.
        "lost-stack" => unsafe { std::arch::asm!("mov rsp, 64", "push rax", options(noreturn)) },
        other => panic!("no fault is called `{other}`"),
    }
}

/// Recurses without end.
fn deeper(depth: u64) -> u64 {
    let frame = black_box([depth; 512]);
    match black_box(depth) {
        0 => frame[0],
        _ => deeper(depth + 1) + frame[7],
    }
}
