//! Libraries that are exchanged while they are opened: the hash on record is that of the code that
//! ran, or none ran.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use espalier_interface::{Serial, Services};
use espalier_registry::library::LibraryFault;
use espalier_registry::{Registry, RegistryError, SearchPath};
use espalier_samples::{faulty, library, put};
use espalier_system::files::hash_bytes;
use serde_json::Map;

/// Exchanges, spread over the time that opening takes and half of it more.
const ROUNDS: u32 = 48;

static SERVICES: &dyn Services = &Serial;

fn found(folder: &Path) -> Registry {
    let search = SearchPath::new([("--plugin-dir", folder.to_owned())]);
    Registry::discover(&search.without_linked())
}

/// What came of a library that was exchanged.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    Refused,
}

/// Finds `good`, begins to open it and make its component after `begin`, and puts `bad` in its
/// place `after` so long. `bad` panics in `create`.
fn exchanged(
    good: &[u8],
    bad: &[u8],
    beside: Option<&[u8]>,
    (begin, after): (Duration, Duration),
) -> Outcome {
    let place = tempfile::tempdir().expect("a folder");
    let (path, spare) = (place.path().join("libcase.so"), place.path().join("spare"));
    put(&path, good);
    put(&spare, bad);
    if let Some(beside) = beside {
        put(&place.path().join(BESIDE), beside);
    }
    let registry = found(place.path());
    let begun = Instant::now();
    let wait = move |until: Duration| {
        while begun.elapsed() < until {
            std::hint::spin_loop();
        }
    };
    let exchange = thread::spawn(move || {
        wait(after);
        fs::rename(spare, path).expect("the same folder");
    });
    wait(begin);
    let made = registry.create_quantizer("faulty", &Map::new(), SERVICES);
    exchange.join().expect("it only renames");
    match made {
        Ok((_, identity)) => {
            assert_eq!(identity.sha256, Some(hash_bytes(good)));
            Outcome::Good
        }
        Err(RegistryError::Library(error)) => {
            let is_told = matches!(
                error.fault,
                LibraryFault::Changed { .. } | LibraryFault::Exchanged
            );
            assert!(is_told, "{error}");
            Outcome::Refused
        }
        Err(other) => panic!("after {after:?} other code ran than is on record: {other}"),
    }
}

/// Exchanges at many moments; builds of each round have a hash of their own, so that each is opened
/// anew.
fn race(good: &[u8], bad: &[u8], beside: Option<&[u8]>) {
    let of_round = |bytes: &[u8], round: u32| [bytes, format!("round {round}").as_bytes()].concat();
    let begun = Instant::now();
    let at_once = (Duration::ZERO, Duration::ZERO);
    exchanged(
        &of_round(good, ROUNDS),
        &of_round(bad, ROUNDS),
        beside,
        at_once,
    );
    // How long a round takes, with what is written for it.
    let whole = begun.elapsed();
    let mut outcomes = Vec::new();
    for round in 0..ROUNDS {
        let after = whole * round / ROUNDS;
        let (good, bad) = (of_round(good, round), of_round(bad, round));
        outcomes.push(exchanged(&good, &bad, beside, (whole / 6, after)));
    }
    for outcome in [Outcome::Good, Outcome::Refused] {
        assert!(outcomes.contains(&outcome), "no {outcome:?} of {ROUNDS}");
    }
}

#[test]
fn what_runs_is_what_was_hashed_whenever_a_library_is_exchanged() {
    race(&faulty("nowhere:none"), &faulty("create:panic"), None);
}

#[test]
fn a_library_that_needs_its_own_folder_is_opened_there_and_runs_only_as_it_was_hashed() {
    let plain = fs::read(library("linear4")).expect("just built");
    let needing = |fault: &str| needing_beside(&faulty(fault));
    race(
        &needing("nowhere:none"),
        &needing("create:panic"),
        Some(&plain),
    );
    // Two builds in one process, one after the other under one name: each is itself.
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("libcase.so");
    put(&place.path().join(BESIDE), &plain);
    for (fault, works) in [("nowhere:none", true), ("create:panic", false)] {
        put(&path, &needing(fault));
        let made = found(place.path()).create_quantizer("faulty", &Map::new(), SERVICES);
        assert_eq!(made.is_ok(), works, "{fault}: {:?}", made.err());
    }
    // What it needs is looked for there, and nowhere else.
    fs::remove_file(place.path().join(BESIDE)).expect("ours");
    put(&path, &[needing("nowhere:none"), vec![1]].concat());
    let made = found(place.path()).create_quantizer("faulty", &Map::new(), SERVICES);
    let error = made.err().expect("it needs that file").to_string();
    assert!(error.contains(BESIDE), "{error}");
}

#[test]
fn the_same_bytes_are_loaded_once_wherever_they_lie() {
    let bytes = [fs::read(library("linear4")).expect("just built"), vec![7]].concat();
    for _ in 0..3 {
        let place = tempfile::tempdir().expect("a folder");
        put(&place.path().join("libonce.so"), &bytes);
        let registry = found(place.path());
        let made = registry.create_quantizer("linear4", &Map::new(), SERVICES);
        made.expect("a sound library");
    }
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    let code = maps
        .lines()
        .filter(|line| line.contains("libonce.so") && line.contains(" r-xp "));
    assert_eq!(code.count(), 1, "{maps}");
}

/// The file that a patched library needs beside itself.
const BESIDE: &str = "beside";

/// A library that needs `$ORIGIN/beside`: the name takes the place of that of a symbol that nobody
/// has to have, and the entry that of a count which only speeds up loading.
fn needing_beside(library: &[u8]) -> Vec<u8> {
    /// Source: System V ABI, "Dynamic Section"; DT_RELACOUNT of the GNU linker.
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    const DT_RELACOUNT: u64 = 0x6fff_fff9;
    let symbol = b"\0_ITM_deregisterTMCloneTable\0";
    let mut bytes = library.to_vec();
    let at = bytes
        .windows(symbol.len())
        .position(|bytes| bytes == symbol)
        .expect("the C compiler's own object names it")
        + 1;
    let name = format!("$ORIGIN/{BESIDE}\0");
    bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    // Entries of 16 bytes, aligned: the table is the one that has both.
    let entry = |bytes: &[u8], tag: u64, plausible: &dyn Fn(u64) -> bool| {
        let mut places = (0..bytes.len() - 16).step_by(8);
        places
            .find(|&place| number(bytes, place) == tag && plausible(number(bytes, place + 8)))
            .unwrap_or_else(|| panic!("no entry {tag:#x}"))
    };
    let count = entry(&bytes, DT_RELACOUNT, &|count| count > 0 && count < 1 << 20);
    // The strings lie in the first segment, where addresses are places in the file; the name is
    // among them.
    let near = |address: u64| address > 0 && address < at as u64 && at as u64 - address < 1 << 20;
    let table = count.saturating_sub(64 * 8);
    let strings = entry(&bytes[table..], DT_STRTAB, &near) + table;
    let offset = at as u64 - number(&bytes, strings + 8);
    bytes[count..count + 8].copy_from_slice(&DT_NEEDED.to_le_bytes());
    bytes[count + 8..count + 16].copy_from_slice(&offset.to_le_bytes());
    bytes
}
