//! When a call is reported, when it ends the process, and what is named.

use std::path::Path;

use espalier_interface::abi::call_site::{self, CallSite, Limits, Mark};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn entered(name: &str, callback: &'static str, limit: Limit) -> Mark {
    let limits = Limits {
        create: limit,
        call: limit,
    };
    let file = Path::new("/p/libx.so");
    CallSite::limited(name, Some(file), limits).enter(callback)
}

/// The pending calls of components whose names begin with `of`.
fn pending(of: &str) -> Vec<Pending> {
    let all = call_site::pending().into_iter();
    all.filter(|one| one.call.site().component().starts_with(of))
        .collect()
}

/// The actions of `secs` checks, a second apart, each with its second.
fn looks(
    times: &mut CallTimes,
    of: &str,
    secs: u64,
    mut between: impl FnMut(u64),
    asked: Option<i32>,
) -> Vec<(u64, Action)> {
    let mut all = Vec::new();
    for sec in 0..secs {
        between(sec);
        let (actions, _) = times.look(&pending(of), SECOND, asked);
        all.extend(actions.into_iter().map(|action| (sec, action)));
    }
    all
}

#[test]
fn a_silent_call_is_told_of_in_time_and_ended_at_its_limit() {
    let _about = call_site::about_text("lm_head.weight");
    let _mark = entered("silent", "encode", Limit::After(30 * SECOND));
    let found = looks(&mut CallTimes::default(), "silent", 60, |_| (), None);
    let [(10, Action::Say(line)), (30, Action::End(call, key))] = &found[..] else {
        panic!("{found:?}")
    };
    let what = "plugin `silent` (/p/libx.so) in encode of `lm_head.weight`";
    let expected = format!(
        "waiting for {what}, 10 s so far; without a sign of progress the program ends after 30 s"
    );
    assert_eq!(line, &expected);
    assert_eq!((call.to_string().as_str(), call.secs), (what, 30));
    assert_eq!(*key, "run.plugin_timeout_secs");
}

#[test]
fn a_call_that_shows_progress_is_told_of_once_and_never_ended() {
    let _mark = entered("goes-on", "encode", Limit::After(4 * SECOND));
    let beat = |sec: u64| {
        if sec.is_multiple_of(3) {
            call_site::progress();
        }
    };
    let found = looks(&mut CallTimes::default(), "goes-on", 1000, beat, None);
    let said: Vec<&Action> = found.iter().map(|(_, action)| action).collect();
    assert!(
        said.iter().all(|one| matches!(one, Action::Say(_))),
        "{found:?}"
    );
    let goes_on =
        |one: &&&Action| matches!(one, Action::Say(line) if line.contains("is still running"));
    assert_eq!(said.iter().filter(goes_on).count(), 1, "{found:?}");
}

/// Each poll returns, and what is polled for never comes.
#[test]
fn polls_that_get_nowhere_are_told_of_and_ended_as_a_call_that_does_not_return() {
    let _polls = call_site::polls();
    let poll = |_| drop(entered("polled", "query", Limit::After(30 * SECOND)));
    let found = looks(&mut CallTimes::default(), "polled", 60, poll, None);
    let [(10, Action::Say(line)), (30, Action::End(call, _))] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        line.contains("`polled` (/p/libx.so) in query, 10 s so far"),
        "{line}"
    );
    assert_eq!(call.plugin, "polled");
}

#[test]
fn what_a_call_waits_for_is_named_in_its_place() {
    let limit = Limit::After(20 * SECOND);
    let _outer = entered("nested-cpu", "launch", limit);
    let outer = pending("nested-cpu");
    let _inner = entered("nested-nf4", "decode", limit);
    // Another thread's, as the times sees it.
    let both = || {
        let mut inner = pending("nested-nf4");
        inner[0].thread += 1000;
        [outer.clone(), inner].concat()
    };
    let mut times = CallTimes::default();
    let mut found = Vec::new();
    for _ in 0..30 {
        found.extend(times.look(&both(), SECOND, None).0);
    }
    let [Action::Say(line), Action::End(call, _)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        line.contains("`nested-nf4` (/p/libx.so) in decode"),
        "{line}"
    );
    assert_eq!(call.plugin, "nested-nf4");
}

#[test]
fn calls_that_wait_for_others_or_have_no_limit_are_never_ended() {
    let _mark = entered("others", "call", Limit::OfOthers);
    let found = looks(&mut CallTimes::default(), "others", 2000, |_| (), None);
    assert_eq!(found, []);
    let _mark = entered("endless", "encode", Limit::None);
    let found = looks(&mut CallTimes::default(), "endless", 2000, |_| (), None);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|(_, one)| matches!(one, Action::Say(_))));
}

#[test]
fn the_first_signal_says_what_is_waited_for_and_how_to_end_it() {
    let mut times = CallTimes::default();
    let _mark = entered("asked", "decode", Limit::After(900 * SECOND));
    looks(&mut times, "asked", 3, |_| (), None);
    let found = looks(&mut times, "asked", 4, |_| (), Some(15));
    let [(0, Action::Say(line))] = &found[..] else {
        panic!("{found:?}")
    };
    let what = "SIGTERM asks to stop, and this waits for plugin `asked` (/p/libx.so) in decode, 3 s so far; a second signal ends";
    assert!(line.starts_with(what), "{line}");
    // Where nothing hangs the report comes later, if the process still runs.
    let found = looks(&mut CallTimes::default(), "nobody", 9, |_| (), Some(2));
    let [(1, Action::Say(line))] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        line.starts_with("SIGINT asks to stop: the current work"),
        "{line}"
    );
}
