//! A report's text, facts and page -> whether they agree with the run's files. It implements the
//! rules from their description and shares no code with the report.

use serde_json::Value as Json;

use super::claim::{Claim, Verb, claim};
use super::outcome::{Eval, Outcome, Step};
use super::words::{Checked, between, ensure, number, text};

/// The first contradiction between `report` and `outcome`.
pub fn check(outcome: &Outcome, report: &Json, page: Option<&str>) -> Checked {
    let verdict = text(&report["reading"]["verdict"])?;
    ensure(
        verdict == text(&report["facts"]["verdict"])?,
        "two verdicts",
    )?;
    let sentences: Vec<&str> = report["reading"]["sentences"]
        .as_array()
        .ok_or("no sentences")?
        .iter()
        .filter_map(Json::as_str)
        .collect();
    let printed = sentences.join(" ");
    for word in ["NaN", "inf ", "inf.", "inf%", "None", "Some("] {
        ensure(!printed.contains(word), format!("{word:?} in the text"))?;
    }
    let first = *sentences.first().ok_or("no sentence")?;
    verdicts(outcome, verdict, first)?;
    more(outcome, &printed)?;
    match page {
        Some(page) => on_page(outcome, &printed, first, page),
        None => Ok(()),
    }
}

/// The verdict, the sentence that supports it, and the numbers in it.
fn verdicts(outcome: &Outcome, verdict: &str, first: &str) -> Checked {
    let broken = outcome.steps.iter().any(|step| !step.loss.is_finite())
        || outcome.evals.iter().any(|eval| !eval.loss.is_finite());
    ensure(
        first.contains("is not a number") == broken,
        "a loss that is not a number",
    )?;
    if broken {
        return ensure(verdict == "diverged", "not a number, and not diverged");
    }
    let counted = outcome.evals.len() > 1;
    let short = outcome.steps.is_empty() || (outcome.steps.len() < 5 && !counted);
    ensure((verdict == "too_short") == short, "too short")?;
    if short {
        let count = outcome.steps.len();
        let says = match count {
            0 => "No step is done.".to_owned(),
            1 => "1 step is too little".to_owned(),
            _ => format!("{count} steps are too few"),
        };
        return ensure(first.contains(&says), "the number of steps");
    }
    if verdict == "overfits" {
        return fell_and_rose(outcome, first);
    }
    let claim = claim(first)?;
    ensure(
        claim.held_out == (counted && verdict != "diverged"),
        "the loss that counts",
    )?;
    match (verdict, claim.verb) {
        ("learned", Verb::Fell) | ("got_worse", Verb::Rose) | ("diverged", Verb::Rose) => {}
        ("nothing_learned", Verb::HardlyMoved) | ("cannot_tell", Verb::Uncertain) => {}
        (_, verb) => return Err(format!("{verdict} with the verb {verb:?}")),
    }
    let means = if claim.held_out {
        [first_of(&outcome.evals).loss, last_of(&outcome.evals).loss]
    } else {
        training_ends(outcome, claim.interval.is_some())?
    };
    numbers(&claim, means)?;
    if verdict == "diverged" {
        ensure(
            means[1] >= 1.0999 * means[0],
            "diverged by less than a tenth",
        )?;
    }
    if claim.held_out {
        held_out(outcome, &claim, first)
    } else {
        ensure(
            claim.interval.is_some() != first.contains("the order of the files"),
            "an interval, or the order of the files",
        )
    }
}

/// The numbers in the text against those of the files, and the verb against the interval.
fn numbers(claim: &Claim<'_>, [before, after]: [f64; 2]) -> Checked {
    for (printed, true_value) in claim.ends.iter().zip([before, after]) {
        let value = number(printed)?;
        let off = (value - true_value).abs();
        ensure(
            off <= 6e-4 * true_value.abs(),
            format!("{printed} for {true_value}"),
        )?;
    }
    let Some(moved) = claim.moved.filter(|_| before > 0.0) else {
        return Ok(());
    };
    let true_move = 100.0 * (after / before - 1.0);
    ensure(
        (moved - true_move).abs() <= 0.0501,
        format!("{moved} for {true_move}"),
    )?;
    let fits = match (claim.interval, claim.verb) {
        (None, Verb::Fell) => true_move <= -1.99,
        (None, Verb::Rose) => true_move >= 1.99,
        (None, Verb::HardlyMoved) => true_move.abs() <= 2.01,
        (None, Verb::Uncertain) => true,
        (Some([low, high]), verb) => {
            ensure(
                low <= moved && moved <= high,
                "the estimate is outside its interval",
            )?;
            match verb {
                Verb::Fell => high <= -0.04,
                Verb::Rose => low >= 0.04,
                Verb::HardlyMoved => low >= -2.06 && high <= 2.06,
                Verb::Uncertain => low <= 0.16 && high >= -0.16 && (low < -1.94 || high > 1.94),
            }
        }
    };
    ensure(fits, format!("{:?} with {:?}", claim.verb, claim.interval))
}

/// The statement on held-out rows against the recorded rows.
fn held_out(outcome: &Outcome, claim: &Claim<'_>, first: &str) -> Checked {
    let (before, after) = (first_of(&outcome.evals), last_of(&outcome.evals));
    let pairs = match (&before.rows, &after.rows) {
        (Some(before), Some(after)) if before.len() > 1 => Some((before, after)),
        _ => None,
    };
    ensure(
        claim.interval.is_some() == pairs.is_some(),
        "an interval without rows",
    )?;
    ensure(
        first.contains("these rows only") == pairs.is_none(),
        "these rows only",
    )?;
    let (Some((before, after)), Some([low, high])) = (pairs, claim.interval) else {
        return Ok(());
    };
    ensure(claim.rows == Some(before.len()), "the number of rows")?;
    // The ratio's variance by its first-order formula, close to the jackknife's. An interval needs
    // at least two rows.
    let tokens: f64 = before.iter().map(|row| row.1 as f64).sum();
    let whole: f64 = before.iter().map(|row| row.0).sum();
    let moved = |(one, other): (&(f64, u64), &(f64, u64))| other.0 - one.0;
    let sum: f64 = before.iter().zip(after).map(moved).sum();
    let squares = before.iter().zip(after).map(|pair| {
        let residual = moved(pair) - sum / tokens * pair.0.1 as f64;
        residual * residual
    });
    let count = before.len() as f64;
    let deviation = (squares.sum::<f64>() * count / (count - 1.0)).sqrt() / tokens;
    let (half, deviation) = ((high - low) / 2.0, 100.0 * deviation * tokens / whole);
    let most = if count >= 40.0 { 3.0 } else { 1e9 };
    let fits = half + 0.06 >= 1.8 * deviation && half - 0.06 <= most * deviation;
    ensure(
        fits || whole == 0.0,
        format!("an interval of {half} at a deviation of {deviation}"),
    )
}

/// The held-out loss that fell and rose again.
fn fell_and_rose(outcome: &Outcome, first: &str) -> Checked {
    let says = between(first, "The held-out loss fell from ", ", then rose to ")?;
    let (from, rest) = says.split_once(" to ").ok_or("no lowest loss")?;
    let (best, step) = rest.split_once(" at step ").ok_or("no step")?;
    let last = between(first, ", then rose to ", " (")?;
    let [from, best, last] = [number(from)?, number(best)?, number(last)?];
    let lowest = outcome
        .evals
        .iter()
        .map(|eval| eval.loss)
        .fold(
            f64::INFINITY,
            |least, loss| {
                if loss < least { loss } else { least }
            },
        );
    let at = outcome.evals.iter().find(|eval| eval.loss == lowest);
    let step: u64 = step.parse().map_err(|_| "no step")?;
    ensure(
        at.is_some_and(|eval| eval.step == step),
        "the step of the lowest loss",
    )?;
    for (printed, found) in [
        (from, first_of(&outcome.evals).loss),
        (best, lowest),
        (last, last_of(&outcome.evals).loss),
    ] {
        ensure(
            (printed - found).abs() <= 6e-4 * found,
            format!("{printed} for {found}"),
        )?;
    }
    ensure(from > best && last > best, "it fell and rose")?;
    let stop = format!("run.max_steps = {step}");
    ensure(first.contains(&stop), "where to stop")?;
    if first.contains("continued to fall") {
        let since = &outcome.steps[step as usize..];
        let (early, late) = since.split_at(since.len() / 2);
        let mean =
            |steps: &[Step]| steps.iter().map(|step| step.loss).sum::<f64>() / steps.len() as f64;
        ensure(
            mean(late) < mean(early),
            "the training loss continued to fall",
        )?;
    }
    Ok(())
}

/// The other sentences.
fn more(outcome: &Outcome, printed: &str) -> Checked {
    let done = outcome.steps.len() as u64;
    let ended = outcome.planned.is_none_or(|planned| done >= planned);
    let planned = outcome.planned.unwrap_or_default();
    let unfinished = format!("{done} of {planned} steps are done");
    ensure(printed.contains("has not ended") != ended, "its end")?;
    ensure(
        ended || printed.contains(&unfinished),
        "steps done and planned",
    )?;
    let torn = format!("left out: {}.", outcome.torn);
    ensure(
        printed.contains(&torn) == (outcome.torn > 0),
        "lines left out",
    )?;
    let [taken, _] = outcome.swaps;
    let swapped = format!("swapped on the way ({taken})");
    ensure(printed.contains(&swapped) == (taken > 0), "swaps")?;
    let clipped = outcome
        .steps
        .iter()
        .filter(|step| step.grad_norm > outcome.clip_norm)
        .count();
    let often = outcome.clip_norm > 0.0 && 4 * clipped > outcome.steps.len();
    ensure(printed.contains("was clipped to 1 in") == often, "clipping")?;
    ensure(
        printed.contains("nothing to do") == outcome.idle,
        "ranks with nothing to do",
    )?;
    for (name, of) in [
        (
            "Exact match on held-out rows: ",
            (|eval| eval.exact) as fn(&Eval) -> Option<f64>,
        ),
        ("Token accuracy on held-out rows: ", |eval| eval.accuracy),
    ] {
        let found: Vec<f64> = outcome.evals.iter().filter_map(of).collect();
        match found[..] {
            [before, .., after] => {
                let [before, after] =
                    [before, after].map(|share| format!("{:.1} %", 100.0 * share));
                let says = format!("{name}{before} before, {after} after.");
                ensure(printed.contains(&says), says)?;
            }
            _ => ensure(!printed.contains(name), name)?,
        }
    }
    Ok(())
}

/// The page shows the numbers in the text, and compares nothing with a plan of only some ranks.
fn on_page(outcome: &Outcome, printed: &str, first: &str, page: &str) -> Checked {
    ensure(
        !page.to_lowercase().contains("speed of light"),
        "the speed of light",
    )?;
    if let Ok(share) = between(page, "tokens/s</p>\n    <p class=\"small\">", " % of peak") {
        ensure(number(share)? <= 100.0, format!("{share} % of peak"))?;
    }
    for word in ["NaN", "inf %", "inf<"] {
        ensure(!page.contains(word), format!("{word:?} on the page"))?;
    }
    let words = page
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#x2f;", "/");
    ensure(words.contains(printed), "the page says something else")?;
    if let Ok(claim) = claim(first) {
        let name = if claim.held_out {
            "Held-out loss"
        } else {
            "Training loss"
        };
        let shown = between(page, &format!("<h3>{name}</h3>"), "</p>")?;
        for end in claim.ends {
            let value = shown.split(['<', '>', ' ', '\n']).any(|word| word == end);
            ensure(value, format!("{name} of {end}: {shown}"))?;
        }
    }
    let compared = page.contains("above the plan") || page.contains("below the plan");
    let known = outcome.ranks == 1 || outcome.all_planned;
    ensure(
        compared == (known && !outcome.steps.is_empty()),
        "a comparison with the plan",
    )
}

/// The means of the first and the last steps, as described in the report's small print.
fn training_ends(outcome: &Outcome, has_interval: bool) -> Result<[f64; 2], String> {
    let (steps, count) = (&outcome.steps, outcome.steps.len());
    let counted = steps.iter().all(|step| step.tokens > 0);
    let mean = |steps: &[Step]| {
        let weight = |step: &Step| if counted { step.tokens as f64 } else { 1.0 };
        let sum: f64 = steps.iter().map(|step| weight(step) * step.loss).sum();
        sum / steps.iter().map(weight).sum::<f64>()
    };
    if let (false, true, Some(pass @ 2..)) =
        (outcome.shuffle, has_interval, outcome.steps_per_epoch)
    {
        let (pass, last) = (pass as usize, count / pass as usize - 1);
        let (one, other) = (&steps[..pass], &steps[last * pass..(last + 1) * pass]);
        // Rows of the same step are equal, and so are the weights.
        let weights: Vec<f64> = one
            .iter()
            .map(|step| {
                if one.iter().all(|s| s.tokens > 0) {
                    step.tokens as f64
                } else {
                    1.0
                }
            })
            .collect();
        let mean = |steps: &[Step]| {
            let sum: f64 = steps
                .iter()
                .zip(&weights)
                .map(|(step, w)| step.loss * w)
                .sum();
            sum / weights.iter().sum::<f64>()
        };
        return Ok([mean(one), mean(other)]);
    }
    let part = match count {
        100.. => (count / 10).min(50),
        _ => count.div_ceil(3).min(10),
    };
    let part = part.min(count / 2).max(1);
    Ok([
        mean(&steps[..part.div_ceil(2)]),
        mean(&steps[count - part..]),
    ])
}

fn first_of(evals: &[Eval]) -> &Eval {
    &evals[0]
}

fn last_of(evals: &[Eval]) -> &Eval {
    &evals[evals.len() - 1]
}
