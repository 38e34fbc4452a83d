//! `host merge`: a model and an adapter into one complete model directory.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::convert::merge::{self, MergeOptions};
use espalier_trainer::convert::merge_check::PreparedCheck;
use espalier_trainer::convert::{Base, DType};
use espalier_trainer::error::Error;

use super::quantize::new_model_config;
use crate::arguments::{BaseChoice, DtypeChoice, MergeArguments};
use crate::output::Output;
use crate::watch::{Showing, watched};

/// Merges and prints the result.
pub fn run(arguments: &MergeArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    let resolved = new_model_config(&arguments.sources()?)?;
    let options = MergeOptions {
        base: arguments.base.map(|base| match base {
            BaseChoice::Original => Base::Original,
            BaseChoice::Decoded => Base::Decoded,
        }),
        dtype: arguments.dtype.map(|dtype| match dtype {
            DtypeChoice::F32 => DType::F32,
            DtypeChoice::Bf16 => DType::BF16,
            DtypeChoice::F16 => DType::F16,
        }),
    };
    let (done, found) = watched(
        Showing::unless_quiet(arguments.model.quiet),
        None,
        |observer, stop| {
            let rows = arguments.check_rows();
            let open = |rows| PreparedCheck::open(&resolved, rows, observer, stop);
            let check = rows.as_ref().map(open).transpose()?;
            let done = merge::merge(&resolved, options, observer, stop)?;
            let merged = resolved.config().run.out.as_deref();
            let found = match (check, merged) {
                (Some(check), Some(merged)) => Some(check.measure(merged, observer, stop)?),
                _ => None,
            };
            Ok::<_, Error>((done, found))
        },
    )?;
    if let Some(directory) = &resolved.config().run.out {
        out.set_place(directory);
    }
    writeln!(
        out,
        "{} weights merged, {} tensors copied, {}",
        done.changed,
        done.copied,
        Bytes(done.bytes_after)
    )?;
    if let Some(found) = found {
        writeln!(
            out,
            "logits of {} tokens: at most {:.3e} from the adapter's, {:.3e} in the mean; KL {:.3e} \
             nats a token, the same likeliest token for {:.1} %",
            found.tokens,
            found.largest,
            found.mean,
            found.divergence,
            100.0 * found.same_top
        )?;
    }
    Ok(())
}
