//! Libraries that are replaced while they are opened: the recorded hash is that of the executed
//! code, or no code was executed.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use espalier_interface::{Serial, Services};
use espalier_registry::library::LibraryFault;
use espalier_registry::{Registry, RegistryError, SearchPath};
use espalier_samples::{faulty, library, put};
use espalier_system::files::hash_bytes;
use serde_json::Map;

/// Replacements, spread over 1.5 times the duration of opening.
const ROUNDS: u32 = 48;

static SERVICES: &dyn Services = &Serial;

fn found(folder: &Path) -> Registry {
    let search = SearchPath::new([("--plugin-dir", folder.to_owned())]);
    Registry::discover(&search.without_linked())
}

/// The result for a replaced library.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    Refused,
}

/// Finds `good`, starts to open it and create its component after `begin`, and replaces it by `bad`
/// `after` that time. `bad` panics in `create`.
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
    let started = Instant::now();
    let wait = move |until: Duration| {
        while started.elapsed() < until {
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

/// Replaces at many moments; the builds of each round have their own hash, so that each is opened
/// again.
fn race(good: &[u8], bad: &[u8], beside: Option<&[u8]>) {
    let of_round = |bytes: &[u8], round: u32| [bytes, format!("round {round}").as_bytes()].concat();
    let started = Instant::now();
    let at_once = (Duration::ZERO, Duration::ZERO);
    exchanged(
        &of_round(good, ROUNDS),
        &of_round(bad, ROUNDS),
        beside,
        at_once,
    );
    // Duration of a round, including its writes.
    let whole = started.elapsed();
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
fn executed_code_has_the_recorded_hash_at_every_moment_of_replacement() {
    race(&faulty("nowhere:none"), &faulty("create:panic"), None);
}

#[test]
fn a_library_that_needs_its_folder_is_opened_there_and_runs_only_as_hashed() {
    let plain = fs::read(library("linear4")).expect("just built");
    let needing = |fault: &str| needing_beside(&faulty(fault));
    race(
        &needing("nowhere:none"),
        &needing("create:panic"),
        Some(&plain),
    );
    // Two builds in one process, one after the other under one name: each runs its own code.
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("libcase.so");
    put(&place.path().join(BESIDE), &plain);
    for (fault, works) in [("nowhere:none", true), ("create:panic", false)] {
        put(&path, &needing(fault));
        let made = found(place.path()).create_quantizer("faulty", &Map::new(), SERVICES);
        assert_eq!(made.is_ok(), works, "{fault}: {:?}", made.err());
    }
    // Its dependency is searched only there.
    fs::remove_file(place.path().join(BESIDE)).expect("ours");
    put(&path, &[needing("nowhere:none"), vec![1]].concat());
    let made = found(place.path()).create_quantizer("faulty", &Map::new(), SERVICES);
    let error = made.err().expect("it needs that file").to_string();
    assert!(error.contains(BESIDE), "{error}");
}

#[test]
fn equal_bytes_are_loaded_once_from_any_path() {
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

/// The file that a patched library needs in its folder.
const BESIDE: &str = "beside";

/// A library that needs `$ORIGIN/beside`. The name replaces that of an optional symbol, and the
/// entry replaces a count that only speeds up loading.
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
    // The strings are in the first segment, where addresses equal file offsets; the name is among
    // them.
    let near = |address: u64| address > 0 && address < at as u64 && at as u64 - address < 1 << 20;
    let table = count.saturating_sub(64 * 8);
    let strings = entry(&bytes[table..], DT_STRTAB, &near) + table;
    let offset = at as u64 - number(&bytes, strings + 8);
    bytes[count..count + 8].copy_from_slice(&DT_NEEDED.to_le_bytes());
    bytes[count + 8..count + 16].copy_from_slice(&offset.to_le_bytes());
    bytes
}
