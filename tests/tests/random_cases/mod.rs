//! Random cases: `cpu` passes them, and planted bugs are found by them.

use espalier_conformance::ops::{self, Answer, OpCheck};
use espalier_interface::{Device, KernelRequest};

use super::{Bug, Spoiled, check_of, cpu, set, uncapped, wider};

/// Seeds of each op that `cpu` passes.
const SEEDS: u64 = 6;
/// Seeds within which a bug in every case is found: some cases have no elements.
const FEW: u64 = 12;
/// Seeds within which a bug in some cases is found.
const MANY: u64 = 100;

/// The first fault of `op` on a device with a bug beside a sound one, of the cases of `seeds`
/// seeds.
fn fault(op: &OpCheck, bug: Bug, seeds: u64) -> Option<String> {
    let (sound, spoiled) = (cpu(), Spoiled::new(cpu(), bug));
    let devices: [(&str, &dyn Device); 2] = [("sound", sound.as_ref()), ("spoiled", &spoiled)];
    let trials = (0..seeds).flat_map(|seed| ops::trials(&devices, op, seed));
    let mut faults = trials.filter_map(|trial| trial.faults().next().map(str::to_owned));
    faults.next()
}

/// Fails with the bugs that `seeds` seeds do not find.
fn all_found(seeds: u64, planted: impl IntoIterator<Item = (&'static str, &'static str, Bug)>) {
    for (op, what, bug) in planted {
        let reason = fault(check_of(op), bug, seeds);
        let reason = reason.unwrap_or_else(|| panic!("{op}, {what}: not found"));
        assert!(reason.starts_with("spoiled: "), "{op}, {what}: {reason}");
    }
}

#[test]
fn cpu_passes_random_cases_of_every_op() {
    let device = cpu();
    let devices = [("cpu", device.as_ref())];
    for op in ops::all() {
        for seed in 0..SEEDS {
            let trials = ops::trials(&devices, op, seed);
            assert!(!trials.is_empty(), "{}", op.name);
            for trial in trials {
                let passed = matches!(trial.answers[0], Answer::Within(share) if share <= 1.0);
                assert!(passed, "{}, seed {seed}: {trial:?}", op.name);
            }
        }
    }
}

#[test]
fn a_last_element_that_is_off_is_found_in_every_op() {
    for op in ops::all() {
        let reason = fault(op, Bug::LastElement, FEW);
        let reason = reason.unwrap_or_else(|| panic!("{}: not found", op.name));
        assert!(reason.contains("must be"), "{}: {reason}", op.name);
    }
}

#[test]
fn bugs_of_some_shapes_and_attributes_are_found() {
    let eps = Bug::Request(|request| {
        let eps = request.attributes.number("eps").expect("eps");
        set(request, "eps", 2.0 * eps);
    });
    let alpha = Bug::Request(|request| {
        request.attributes.0.remove("alpha");
    });
    let unscaled = Bug::Request(|request| set(request, "scaling", 1.0));
    let code = Bug::Drops(1, 1);
    all_found(
        MANY,
        [
            ("attention", "a window off by one", Bug::Request(wider)),
            ("attention", "no cap", Bug::Request(uncapped)),
            ("attention_backward", "no cap", Bug::Request(uncapped)),
            ("rope.2", "no scaling", unscaled),
            ("rms_norm", "another eps", eps),
            ("linear.2", "no alpha", alpha),
            ("linear.4", "no alpha", alpha),
            ("linear", "the last code", code),
            ("linear_input_backward.2", "no alpha", alpha),
            ("adamw", "the last gradient", Bug::Drops(0, 4)),
        ],
    );
}

/// Another scale, in wide heads of a width that the kit does not have.
fn wide_heads(request: &mut KernelRequest) {
    let scale = request.attributes.number("scale").expect("a scale");
    let width = request.attributes.count("head_dim").expect("a width");
    if width > 64 && width != 128 {
        set(request, "scale", 1.01 * scale);
    }
}

#[test]
fn a_bug_outside_of_the_kit_s_shapes_is_found() {
    let bug = Bug::Request(wide_heads);
    let op = check_of("attention");
    assert_eq!(ops::check(&Spoiled::new(cpu(), bug), op), Ok(()));
    all_found(MANY, [("attention", "wide heads", bug)]);
}

#[test]
fn a_case_that_is_not_offered_is_counted_and_not_compared() {
    let bug = Bug::Request(|request| request.op = "no_such_op".to_owned());
    let (sound, spoiled) = (cpu(), Spoiled::new(cpu(), bug));
    let devices: [(&str, &dyn Device); 2] = [("sound", sound.as_ref()), ("lacking", &spoiled)];
    let trials = ops::trials(&devices, check_of("add"), 1);
    let mut tally = ops::Tally::new(["sound", "lacking"]);
    for trial in &trials {
        tally.add("op.add", trial);
        assert!(matches!(trial.answers[0], Answer::Within(_)), "{trial:?}");
        assert!(
            matches!(&trial.answers[1], Answer::NotOffered(why) if why.contains("no_such_op")),
            "{trial:?}"
        );
        assert_eq!((trial.faults().next(), trial.apart), (None, None));
    }
    let cases = trials.len() as u64;
    assert!(cases > 0);
    assert_eq!(
        [tally.cases(), tally.wrong(), tally.not_offered()],
        [cases, 0, cases]
    );
}
