//! `host generate`: continues a text, or answers many prompts.

mod prompts;

use std::io::Write;

use anyhow::{Context, Result};
use espalier_trainer::config::{Need, ResolvedConfig, resolve};
use espalier_trainer::error::Error;
use espalier_trainer::generate::{Answer, End, Generator, Loaded, Reply, Request, Speed, load};
use espalier_trainer::observer::{Observer, Unobserved};
use espalier_trainer::plan::Generation;
use espalier_trainer::program::CacheShape;
use espalier_trainer::stop::StopFlag;
use indicatif::MultiProgress;

use crate::arguments::GenerateArguments;
use crate::progress::Progress;
use crate::signals;

/// Most tokens of prompts taken in at once.
const PREFILL_TOKENS: u64 = 512;
/// Most prompts answered at once.
const SLOTS: u64 = 8;

/// Answers what is asked and prints it.
pub fn run(arguments: &GenerateArguments, bars: &MultiProgress, out: &mut dyn Write) -> Result<()> {
    let sources = arguments.sources()?;
    let resolved = resolve(&sources).map_err(Error::from)?;
    resolved.require(&[Need::Model]).map_err(Error::from)?;
    arguments.sampling(resolved.config().run.seed).check()?;
    let prompts = prompts::read(arguments)?;
    let stop = StopFlag::new();
    signals::watch(&stop).context("cannot watch for signals")?;
    let progress = Progress::new(bars);
    let observer: &dyn Observer = match arguments.quiet {
        true => &Unobserved,
        false => &progress,
    };
    let mut encoded = Vec::new();
    let loaded = load(&resolved, observer, &stop, |_, tokenizer, positions| {
        for prompt in &prompts {
            encoded.push(prompts::encode(tokenizer, prompt)?);
        }
        demand(arguments, &encoded, positions)
    })?;
    drop(progress);
    let mut talk = Talk::new(arguments, &resolved, &loaded, &stop)?;
    let answered = match arguments.prompts {
        Some(_) => talk.answer_all(&prompts, &encoded, out),
        None => talk.answer_one(&encoded[0], out).map(drop),
    };
    answered?;
    if !arguments.quiet {
        eprintln!("{}", speed_line(&talk.generator.speed()));
    }
    Ok(())
}

/// What is generated at once: as many tokens as prompts and answers need and the model allows.
fn demand(
    arguments: &GenerateArguments,
    prompts: &[Vec<i32>],
    positions: u64,
) -> Result<Generation, Error> {
    if let Some(context) = arguments.context
        && (context < 2 || context > positions)
    {
        return Err(Error::Usage {
            message: format!(
                "--context: expected 2 to {positions}, the positions of this model, found {context}"
            ),
            next_step: "leave --context out, or choose another".to_owned(),
        });
    }
    let most = arguments.context.unwrap_or(positions);
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) as u64;
    if longest >= most {
        return Err(Error::Usage {
            message: format!(
                "the prompt has {longest} tokens, and the context {most}: nothing is left for an answer"
            ),
            next_step: "shorten the prompt".to_owned(),
        });
    }
    let slots = (prompts.len() as u64).clamp(1, SLOTS);
    let all: u64 = prompts.iter().map(|prompt| prompt.len() as u64).sum();
    let needed = longest.saturating_add(arguments.max_tokens as u64);
    Ok(Generation {
        cache: CacheShape {
            slots,
            capacity: needed.min(most),
        },
        max_tokens: all.min(PREFILL_TOKENS).max(slots),
    })
}

/// A generator and what the command line asks of it.
struct Talk<'a> {
    arguments: &'a GenerateArguments,
    loaded: &'a Loaded,
    generator: Generator<'a>,
}

impl<'a> Talk<'a> {
    fn new(
        arguments: &'a GenerateArguments,
        resolved: &ResolvedConfig,
        loaded: &'a Loaded,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let sampling = arguments.sampling(resolved.config().run.seed);
        let generator = Generator::new(&loaded.executor, sampling, &loaded.ends, stop)?;
        Ok(Talk {
            arguments,
            loaded,
            generator,
        })
    }

    /// Answers one prompt, its text printed as it is made.
    fn answer_one(&mut self, prompt: &[i32], out: &mut dyn Write) -> Result<Answer> {
        let mut written = Ok(());
        let mut show = |text: &str| {
            let put = |out: &mut dyn Write| {
                out.write_all(text.as_bytes())?;
                out.flush()
            };
            if written.is_ok() {
                written = put(out);
            }
        };
        let mut reply = Reply::new(&self.loaded.tokenizer, &self.arguments.stop);
        let request = Request {
            prompt,
            max_new_tokens: self.arguments.max_tokens,
        };
        let answered = self
            .generator
            .answer(&[request], &mut |_, token| reply.push(token, &mut show));
        if answered.is_ok() {
            reply.finish(&mut show)?;
        }
        written?;
        writeln!(out)?;
        let answer = answered.map_err(|error| self.loaded.naming(error))?;
        Ok(answer.into_iter().next().expect("one prompt, one answer"))
    }

    /// Answers all prompts and prints a JSON line for each.
    fn answer_all(
        &mut self,
        prompts: &[String],
        encoded: &[Vec<i32>],
        out: &mut dyn Write,
    ) -> Result<()> {
        let requests: Vec<Request<'_>> = encoded
            .iter()
            .map(|prompt| Request {
                prompt,
                max_new_tokens: self.arguments.max_tokens,
            })
            .collect();
        let reply = |_: &String| Reply::new(&self.loaded.tokenizer, &self.arguments.stop);
        let mut replies: Vec<Reply<'_>> = prompts.iter().map(reply).collect();
        let nowhere = &mut |_: &str| ();
        let answered = self.generator.answer(&requests, &mut |index, token| {
            replies[index].push(token, nowhere)
        });
        let answers = answered.map_err(|error| self.loaded.naming(error))?;
        for ((prompt, answer), reply) in prompts.iter().zip(&answers).zip(replies) {
            let line = serde_json::json!({
                "prompt": prompt,
                "answer": reply.finish(&mut |_| ())?,
                "tokens": answer.tokens.len(),
                "end": end_name(answer.end),
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// Why an answer ends, in a word.
fn end_name(end: End) -> &'static str {
    match end {
        End::Token(_) => "token",
        End::Length => "length",
        End::Context => "context",
        End::Stopped => "stop",
    }
}

/// Tokens and tokens a second, of prompts and of answers.
fn speed_line(speed: &Speed) -> String {
    let part = |tokens: u64, secs: f64| match tokens {
        0 => "0 tokens".to_owned(),
        _ => format!("{tokens} tokens, {:.1} tokens/s", tokens as f64 / secs),
    };
    format!(
        "prefill {}; decode {}",
        part(speed.prefill_tokens, speed.prefill_secs),
        part(speed.decode_tokens, speed.decode_secs)
    )
}
