//! `host generate`: continues a text, answers many prompts, or talks.

mod chat;
mod lines;
mod prompts;

use std::io::Write;

use anyhow::Result;
use espalier_compile::program::CacheShape;
use espalier_config::{Need, ResolvedConfig, resolve};
use espalier_data::TextTokenizer;
use espalier_plan::plan::Generation;
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;
use espalier_system::stop::StopFlag;
use espalier_trainer::error::Error;
use espalier_trainer::generate::{End, Generator, Reply, Request, Speed};
use espalier_trainer::session::{Loaded, load};

use self::chat::Chat;
use self::lines::Lines;
use crate::arguments::GenerateArguments;
use crate::display;
use crate::output::Output;
use crate::watch::{Showing, watched};

/// Most tokens of prompts in one prefill.
const PREFILL_TOKENS: u64 = 512;
/// Most prompts answered at once.
const SLOTS: u64 = 8;
/// Tokens of a conversation unless --context sets another number.
const CHAT_CONTEXT: u64 = 4096;

/// Answers the prompts and prints the answers.
pub fn run(arguments: &GenerateArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    let sources = arguments.sources()?;
    let resolved = resolve(&sources).map_err(Error::from)?;
    resolved.require(&[Need::Model]).map_err(Error::from)?;
    arguments.sampling(resolved.config().run.seed).check()?;
    let prompts = prompts::read(arguments)?;
    let (mut encoded, mut chat) = (Vec::new(), None);
    let encode = |directory: &ModelDirectory, tokenizer: &TextTokenizer, positions| {
        if arguments.chat {
            let choice = resolved.config().data.chat_template.as_deref();
            let system = arguments.system.as_deref();
            chat = Some(Chat::open(directory.path(), choice, system)?);
        }
        for prompt in &prompts {
            encoded.push(match &mut chat {
                Some(chat) => chat.opening(prompt, tokenizer)?,
                None => prompts::encode(tokenizer, prompt)?,
            });
        }
        demand(arguments, &encoded, positions)
    };
    let (loaded, stop) = watched(
        Showing::unless_quiet(arguments.quiet),
        None,
        |observer, stop| Ok::<_, Error>((load(&resolved, observer, stop, encode)?, stop.clone())),
    )?;
    let mut talk = Talk::new(arguments, &resolved, &loaded, &stop)?;
    let answered = match (encoded.as_slice(), chat) {
        ([], Some(mut chat)) => talk.converse(&mut chat, &Lines::new(&stop), out),
        ([prompt], _) if arguments.prompts.is_none() => talk.answer_one(prompt, out).map(drop),
        _ => talk.answer_all(&prompts, &encoded, out),
    };
    answered?;
    if !arguments.quiet {
        display::show(&speed_line(&talk.generator.speed()));
    }
    Ok(())
}

/// The size of a generation: as many tokens as prompts and answers need and the model allows.
fn demand(
    arguments: &GenerateArguments,
    prompts: &[Vec<i32>],
    positions: u64,
) -> Result<Generation, Error> {
    if let Some(context) = arguments.context
        && (context < 2 || context > positions)
    {
        return Err(Error::Usage(UsageError {
            message: format!(
                "--context: expected 2 to {positions}, the positions of this model, found {context}"
            ),
            next_step: "leave --context out, or choose another".to_owned(),
        }));
    }
    let most = arguments.context.unwrap_or(positions);
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) as u64;
    if longest >= most {
        return Err(Error::Usage(UsageError {
            message: format!(
                "the prompt has {longest} tokens, and the context {most}: nothing is left for an answer"
            ),
            next_step: if most < positions {
                "shorten the prompt, or raise --context".to_owned()
            } else {
                "shorten the prompt".to_owned()
            },
        }));
    }
    if prompts.is_empty() {
        let capacity = arguments.context.unwrap_or(positions.min(CHAT_CONTEXT));
        return Ok(Generation {
            cache: CacheShape { slots: 1, capacity },
            max_tokens: capacity.min(PREFILL_TOKENS),
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

/// A generator and the command line's arguments.
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
        let generator = Generator::new(&loaded.team, sampling, &loaded.ends, stop)?;
        Ok(Talk {
            arguments,
            loaded,
            generator,
        })
    }

    /// Answers one prompt, prints its text as it is generated, and returns it.
    fn answer_one(&mut self, prompt: &[i32], out: &mut dyn Write) -> Result<String> {
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
        let answered = answered.map_err(|error| self.loaded.naming(error));
        let text = match answered {
            Ok(_) => reply.finish(&mut show),
            Err(error) => Err(error),
        };
        written?;
        writeln!(out)?;
        Ok(text?)
    }

    /// Answers line after line, each with all earlier turns as context.
    fn converse(&mut self, chat: &mut Chat, lines: &Lines, out: &mut dyn Write) -> Result<()> {
        while let Some(line) = lines.next()? {
            match line.trim() {
                "" => {}
                "/quit" => break,
                "/reset" => chat.reset(),
                text => match self.turn(chat, text, out) {
                    Err(error) if lines.typed() && refused(&error) => {
                        let next = "shorten it, or clear the conversation with /reset";
                        display::show(&format!("{error}; next: {next}"));
                    }
                    turn => turn?,
                },
            }
        }
        Ok(())
    }

    /// Answers one turn; the turn and its answer are added to the conversation.
    fn turn(&mut self, chat: &mut Chat, text: &str, out: &mut dyn Write) -> Result<()> {
        let prompt = chat.ask(text, &self.loaded.tokenizer)?;
        match self.answer_one(&prompt, out) {
            Ok(text) => chat.answered(text),
            Err(error) => {
                chat.take_back();
                return Err(error);
            }
        }
        Ok(())
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

/// Whether a turn was refused before anything ran.
fn refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Usage(_)))
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
