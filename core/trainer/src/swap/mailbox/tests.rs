//! Swap requests in a run's directory: their order, and invalid files.

use super::*;

fn asked(name: &str, before_step: Option<u64>) -> SwapRequest {
    SwapRequest {
        name: name.to_owned(),
        before_step,
        ..SwapRequest::default()
    }
}

#[test]
fn requests_are_answered_in_their_order_once_they_are_due() {
    let out = tempfile::tempdir().expect("a folder");
    let mailbox = Mailbox::of(out.path());
    assert!(mailbox.next(9).is_none() && mailbox.waiting().is_empty());
    let wanted = [("late", Some(7)), ("first", None), ("second", None)];
    for (index, (name, step)) in wanted.into_iter().enumerate() {
        let number = mailbox.ask(&asked(name, step)).expect("written");
        assert_eq!(number, index as u64 + 1);
    }
    let mut names = Vec::new();
    for step in [5, 6, 6, 7] {
        if let Some((number, request)) = mailbox.next(step) {
            names.push((step, request.expect("whole").name));
            mailbox
                .respond(number, &SwapAnswer::default())
                .expect("room");
        }
    }
    let expected = [(5, "first"), (6, "second"), (7, "late")];
    assert_eq!(names, expected.map(|(step, name)| (step, name.to_owned())));
    let answer = mailbox.answer(2).expect("whole");
    assert_eq!(answer, Some(SwapAnswer::default()));
    assert_eq!(mailbox.ask(&asked("next", None)).expect("written"), 4);
    mailbox.withdraw(4);
    assert!(!mailbox.holds(4) && mailbox.next(9).is_none());
    mailbox.clear().expect("ours");
    assert_eq!(mailbox.ask(&asked("anew", None)).expect("written"), 1);
}

#[test]
fn invalid_requests_are_refused_and_do_not_block_others() {
    let out = tempfile::tempdir().expect("a folder");
    let mailbox = Mailbox::of(out.path());
    mailbox.ask(&asked("good", None)).expect("written");
    for (name, text) in [("request-000000.json", "{"), ("request-x.json", "{}")] {
        fs::write(mailbox.home.join(name), text).expect("written");
    }
    let (number, request) = mailbox.next(1).expect("a request");
    let message = request.expect_err("torn").to_string();
    assert!(
        number == 0 && message.contains("makes no sense"),
        "{message}"
    );
    mailbox.respond(0, &SwapAnswer::default()).expect("room");
    assert_eq!(mailbox.next(1).expect("the other").0, 1);
}
