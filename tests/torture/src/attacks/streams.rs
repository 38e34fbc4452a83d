//! Full, closed or unread standard output and standard error: the work completes.

use std::process::{Command, Stdio};

use crate::ended::{Ended, PATIENCE, carried};
use crate::scenario::Scenario;
use crate::suite::{Attack, Try};

/// The fault of the streams, `K` a number of bytes; whether the printed result of the program is
/// lost.
const STREAMS: [(&str, bool); 8] = [
    ("2>/dev/full", false),
    ("2>&-", false),
    ("2>&1 >/dev/null | head -c K >/dev/null", false),
    ("2>&1 >/dev/null | head -n 1 >/dev/null", false),
    (">/dev/full", true),
    (">&-", true),
    ("| head -c K >/dev/null", false),
    (">/dev/full 2>&1", true),
];

/// All uses.
pub struct Streams(Vec<Scenario>);

impl Streams {
    /// Makes every use once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        Ok(Box::new(Streams(Scenario::of_all())))
    }
}

impl Attack for Streams {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let of = random.of_all(&self.0);
        let (streams, loses_result) = *random.of_all(&STREAMS);
        let streams = streams.replace('K', &random.below(400).to_string());
        let out = a_try.name();
        let case = format!("{} {streams}", of.of.name);
        // Progress is printed too.
        let quiet = of.command(&out, "");
        let mut loud = Command::new(quiet.get_program());
        loud.args(quiet.get_args().filter(|word| *word != "--quiet"));
        loud.current_dir(of.training.folder.path()).envs(
            quiet
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let mut shell = Command::new("bash");
        shell.args([
            "-c",
            &format!("\"$@\" {streams}; exit ${{PIPESTATUS[0]}}"),
            "bash",
        ]);
        let mut command = carried(&loud, shell);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let ended = Ended::of_as_is(&mut command, PATIENCE);
        assert!(!ended.late, "{case}: no end");
        let code = ended.code.unwrap_or(-1);
        assert!(
            code == 0 || code == 8 && loses_result,
            "{case}: exit code {code}, with a result that is lost: {loses_result}"
        );
        of.is_whole(&out, &format!("{case}: exit code {code}"));
        of.recovers(&out, &case);
    }
}
