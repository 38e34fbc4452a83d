//! Marks of calls: nesting, threads, and what another thread sees of them.

use super::*;

#[test]
fn calls_nest_and_threads_are_apart() {
    let names = || current().map(|call| (call.site().component(), call.callback()));
    let outer = CallSite::new("cpu", None).enter("launch");
    let call = current().expect("just entered");
    {
        let site = CallSite::new("nf4", Some(Path::new("/plugins/libnf4.so")));
        let _inner = site.enter("decode");
        assert_eq!(names(), Some(("nf4", "decode")));
        assert_eq!(current().map(Call::depth), Some(2));
    }
    assert_eq!(names(), Some(("cpu", "launch")));
    let elsewhere = std::thread::spawn(move || {
        let before = current().is_none();
        let _mark = call.enter();
        (before, current().map(Call::callback))
    });
    assert_eq!(elsewhere.join().expect("no panic"), (true, Some("launch")));
    drop(outer);
    assert!(current().is_none());
}

/// The call of `component`, as a watcher sees it.
fn seen(component: &str) -> Option<Pending> {
    let mut all = pending().into_iter();
    all.find(|one| one.call.site().component() == component)
}

#[test]
fn other_threads_see_the_innermost_call_its_subject_and_its_progress() {
    let limits = Limits {
        create: Limit::After(Duration::from_secs(10)),
        call: Limit::After(Duration::from_secs(900)),
    };
    let site = CallSite::limited("seen", None, limits);
    let outer = site.enter("launch");
    let first = seen("seen").expect("it is pending");
    assert_eq!(
        (first.call.callback(), first.subject.clone()),
        ("launch", None)
    );
    assert_eq!(first.call.limit(), limits.call);
    {
        let _about = about_text("lm_head.weight");
        let _inner = site.enter(CREATE);
        let inner = seen("seen").expect("it is pending");
        assert_eq!(inner.subject.as_deref(), Some("lm_head.weight"));
        assert_eq!(
            (inner.call.callback(), inner.call.limit()),
            (CREATE, limits.create)
        );
        assert_ne!(inner.number, first.number);
    }
    let again = seen("seen").expect("it is pending");
    assert_eq!((again.number, again.subject.clone()), (first.number, None));
    assert!(again.beats > first.beats, "what it called has returned");
    // Work of another thread for the call is seen as its progress, and not as a call of its
    // own.
    let call = current().expect("in a call");
    let elsewhere = std::thread::spawn(move || {
        let _mark = call.enter();
        progress();
        let named = |one: &Pending| one.call.site().component() == "seen";
        pending().into_iter().filter(named).count()
    });
    assert_eq!(elsewhere.join().expect("no panic"), 1);
    assert!(seen("seen").expect("it is pending").beats >= again.beats + 2);
    drop(outer);
    assert!(seen("seen").is_none());
}

#[test]
fn polls_are_one_call_whose_progress_is_what_happens_within_them() {
    let site = CallSite::new("polled", None);
    let before = site.enter("launch");
    let number = seen("polled").expect("it is pending").number;
    drop(before);
    let polled = polls();
    assert!(seen("polled").is_none(), "no poll yet");
    let poll = site.enter("query");
    let first = seen("polled").expect("it is pending");
    assert_ne!(first.number, number);
    drop(poll);
    assert!(current().is_none());
    drop(site.enter("query"));
    // Between two polls, too.
    let again = seen("polled").expect("it is pending");
    let facts = |one: &Pending| (one.call.callback(), one.number, one.beats);
    assert_eq!(facts(&again), facts(&first));
    {
        let _poll = site.enter("query");
        drop(CallSite::new("polled-inner", None).enter("decode"));
    }
    let third = seen("polled").expect("it is pending");
    assert_eq!(third.number, first.number);
    assert!(third.beats > first.beats, "a poll has called something");
    drop(polled);
    assert!(seen("polled").is_none());
    let _after = site.enter("launch");
    assert_ne!(seen("polled").expect("it is pending").number, first.number);
}
