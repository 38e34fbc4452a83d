//! Entries that are found again, damaged, evicted, left behind.

use espalier_interface::Serial;
use serde_json::json;

use super::*;

/// Bytes of segments of the entries below: more than one part.
const BYTES: usize = PART_BYTES + 1000;

fn put(cache: &BoundedCache, key: &str, value: u8) -> bool {
    let segments: [&[u8]; 2] = [&[value; BYTES], &[value; 3]];
    let done = cache.put(key, &json!({"value": value}), &segments, &Serial);
    done.expect("written")
}

fn read(cache: &BoundedCache, key: &str) -> Result<Option<u8>, String> {
    let (mut first, mut second) = (vec![0; BYTES], [0; 3]);
    let found = cache.read(key, &mut [&mut first, &mut second], &Serial)?;
    Ok(found.map(|about| {
        let value = about["value"].as_u64().expect("a number") as u8;
        assert!(first.iter().chain(&second).all(|byte| *byte == value));
        value
    }))
}

fn set_age(cache: &BoundedCache, name: &str, secs: u64) {
    let file = File::open(cache.directory.join(name)).expect("there");
    let then = SystemTime::now() - Duration::from_secs(secs);
    file.set_modified(then).expect("set");
}

#[test]
fn an_entry_is_found_by_its_key_and_its_sizes() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("new/weights");
    let cache = BoundedCache::open(&folder, u64::MAX).expect("opened");
    let mode = fs::metadata(&folder).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(put(&cache, "a", 7) && put(&cache, "a", 9));
    assert_eq!(read(&cache, "a"), Ok(Some(7)), "the first stays");
    assert_eq!(read(&cache, "b"), Ok(None));
    let again = BoundedCache::open(&folder, u64::MAX).expect("opened");
    assert_eq!(read(&again, "a"), Ok(Some(7)));
    assert_eq!(cache_entries(&folder).expect("listed")[0].about["value"], 7);
    let other = cache.read("a", &mut [&mut [0; 5]], &Serial);
    assert!(other.expect_err("another size").contains("expected"));
}

#[test]
fn every_damaged_byte_is_seen_and_the_entry_removed() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = BoundedCache::open(place.path(), u64::MAX).expect("opened");
    put(&cache, "a", 7);
    let path = cache.path("a");
    let whole = fs::read(&path).expect("there");
    let damaged = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let last = whole.len() - 1;
    let places = [0, 64, 66, 75, 90, PART_BYTES, last].map(damaged);
    let cut = [0, 10, 70, last].map(|bytes| whole[..bytes].to_vec());
    for bytes in places.into_iter().chain(cut) {
        fs::write(&path, &bytes).expect("damaged");
        let problem = read(&cache, "a").expect_err("damaged");
        assert!(problem.contains("a.packed"), "{problem}");
        assert_eq!(read(&cache, "a"), Ok(None), "removed");
    }
}

#[test]
fn the_least_recently_used_entries_make_room() {
    let place = tempfile::tempdir().expect("a folder");
    let room = 3 * (BYTES as u64 + 200);
    let cache = BoundedCache::open(place.path(), room).expect("opened");
    for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
        assert!(put(&cache, key, value));
    }
    for (key, age) in [("a", 30), ("b", 20), ("c", 10)] {
        set_age(&cache, &format!("{key}{ENDING}"), age);
    }
    let later = BoundedCache::open(place.path(), room).expect("opened");
    assert_eq!(read(&later, "a"), Ok(Some(1)), "used");
    assert!(put(&later, "d", 4));
    let found = ["a", "b", "c", "d"].map(|key| read(&later, key).expect("whole"));
    assert_eq!(found, [Some(1), None, Some(3), Some(4)]);
    // All others are in use by this process.
    assert!(!put(&later, "e", 5));
    assert_eq!(read(&later, "e"), Ok(None));
    let small = BoundedCache::open(place.path(), 10).expect("opened");
    assert!(!put(&small, "e", 5), "no room for one entry");
    assert_eq!(clear_cache(place.path(), &|_| true).expect("cleared").0, 3);
    assert!(cache_entries(place.path()).expect("listed").is_empty());
}

#[test]
fn files_of_processes_that_ended_are_removed() {
    let place = tempfile::tempdir().expect("a folder");
    let cache = BoundedCache::open(place.path(), u64::MAX).expect("opened");
    for name in ["old.unfinished", "new.unfinished", "old.other"] {
        fs::write(place.path().join(name), "x").expect("written");
    }
    set_age(&cache, "old.unfinished", 7200);
    set_age(&cache, "old.other", 7200);
    BoundedCache::open(place.path(), u64::MAX).expect("opened");
    let there = |name: &str| place.path().join(name).exists();
    assert!(!there("old.unfinished") && there("new.unfinished") && there("old.other"));
}

#[test]
fn a_directory_of_others_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let refused = BoundedCache::open(place.path(), 1).expect_err("refused");
    assert!(refused.to_string().contains("chmod go-w"), "{refused}");
    assert!(
        cache_entries(&place.path().join("missing"))
            .expect("none")
            .is_empty()
    );
}
