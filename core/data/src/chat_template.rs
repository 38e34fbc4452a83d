//! A conversation -> its text, rendered by the model's chat template or another one, as
//! transformers does.
//!
//! A template that is not shipped is untrusted code. Where the program has set
//! [`render_templates_with`], such a template is rendered in separate processes, whose memory, time
//! and stack the system bounds. Otherwise it is rendered in this process, where only its text,
//! steps and output are bounded.

mod bounds;
mod environment;
mod exchange;
mod locate;
mod message;
mod rendering;
mod serve;
mod shipped;
mod source;
mod worker;
mod workers;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use super::error::{DataError, RowFault, RowLocation, TemplateError};

pub use self::message::Message;
pub use self::serve::serve as serve_templates;

pub(super) use self::message::Turns;
pub(super) use self::rendering::{Answer, Fault, Job};
pub(super) use self::source::names;

use self::bounds::{Met, STACK_BYTES};
use self::environment::{BEGIN, END};
use self::exchange::Opening;
use self::message::json_bytes;
use self::rendering::{Conversation, Rendering, Variables};
use self::shipped::SHIPPED;
use self::source::{OWN, chosen, own, special_tokens};
use self::workers::Workers;

/// The program that renders untrusted templates.
static PROGRAM: OnceLock<OsString> = OnceLock::new();

/// Sets the program that renders untrusted templates. It has to run [`serve_templates`] for the
/// arguments `data render`, as `host` does. The first call counts.
pub fn render_templates_with(program: impl Into<OsString>) {
    PROGRAM.get_or_init(|| program.into());
}

/// A template and the model's special tokens.
pub struct ChatTemplate {
    renderer: Renderer,
    origin: String,
    source: String,
    /// The first known row that exceeded a bound.
    met: Mutex<Option<(RowLocation, Met)>>,
}

/// Whether a rendered text ends in the beginning of the next answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// It does, as a prompt for generation.
    Added,
    /// It ends with the last message.
    Omitted,
}

enum Renderer {
    /// Rendered in this process.
    Here(Box<Rendering>),
    /// Rendered in worker processes.
    Apart(Workers),
}

impl ChatTemplate {
    /// The template of `choice` for the model in `model_dir`: `llama2`, `llama3`, `mistral`,
    /// `chatml` or `zephyr`, which are shipped; `tokenizer` or none for the tokenizer's own; the
    /// name of one in the tokenizer's list; else a file. None where the tokenizer's own is asked
    /// for and it has none.
    ///
    /// # Errors
    /// [`DataError::Io`] for a file that cannot be read. [`DataError::Option`] for an unknown name.
    /// [`DataError::Template`] for a text that is no template or exceeds a bound.
    pub fn open(model_dir: &Path, choice: Option<&str>) -> Result<Option<Self>, DataError> {
        let found = match choice {
            None | Some(OWN) => own(model_dir, "default")?,
            Some(name) => Some(chosen(model_dir, name)?),
        };
        let Some((origin, source)) = found else {
            return Ok(None);
        };
        let is_ours = SHIPPED.iter().any(|(name, _)| *name == origin);
        let program = PROGRAM.get().filter(|_| !is_ours);
        let opened = renderer(&source, special_tokens(model_dir)?, program);
        match opened {
            Ok(renderer) => Ok(Some(ChatTemplate {
                renderer,
                origin,
                source,
                met: Mutex::new(None),
            })),
            Err(Fault::Raised(reason)) => Err(TemplateError::Unusable { origin, reason }.into()),
            Err(Fault::Met(met)) => Err(out_of_bounds(None, &origin, &met)),
        }
    }

    /// The text of the template `choice`, as [`ChatTemplate::open`] finds it; none where it is the
    /// tokenizer's own.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Option`].
    pub fn chosen_text(
        model_dir: &Path,
        choice: Option<&str>,
    ) -> Result<Option<String>, DataError> {
        match choice {
            None | Some(OWN) => Ok(None),
            Some(name) => Ok(Some(chosen(model_dir, name)?.1)),
        }
    }

    /// The text of `messages`, followed by the generation prompt where it is added.
    ///
    /// # Errors
    /// [`DataError::Template`] where the template raises an error or exceeds a bound.
    pub fn render(
        &self,
        messages: &[Message],
        generation_prompt: GenerationPrompt,
    ) -> Result<String, DataError> {
        let text = Job::text(messages.len());
        let job = match generation_prompt {
            GenerationPrompt::Added => text.with_prompt(),
            GenerationPrompt::Omitted => text,
        };
        let text = self.answers(messages.into(), &[job]);
        text.map(|mut answers| answers.remove(0).text())
            .map_err(|fault| match fault {
                Fault::Raised(reason) => TemplateError::Raised {
                    origin: self.origin.clone(),
                    reason,
                }
                .into(),
                Fault::Met(met) => out_of_bounds(None, &self.origin, &met),
            })
    }

    /// The text of turns with tools, without a generation prompt.
    pub(super) fn text(&self, turns: Turns<'_>) -> Result<String, Fault> {
        let job = Job::text(turns.messages.len());
        Ok(self.answers(turns, &[job])?.remove(0).text())
    }

    /// The names of the shipped templates, separated by commas.
    pub fn shipped() -> String {
        names()
    }

    /// Where the template comes from: a name or a path.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether the template marks the model's text with `{% generation %}`.
    pub(super) fn marks_generation(&self) -> bool {
        environment::has_generation_tags(&self.source)
    }

    /// The answers to `jobs` for `turns`, in order.
    pub(super) fn answers(&self, turns: Turns<'_>, jobs: &[Job]) -> Result<Vec<Answer>, Fault> {
        let bytes: usize = turns.messages.iter().map(Message::bytes).sum();
        let conversation = Conversation {
            messages: turns.messages.iter().map(Message::to_value).collect(),
            tools: turns.tools.cloned().unwrap_or_default(),
            bytes: bytes + turns.tools.map_or(0, json_bytes),
        };
        match &self.renderer {
            Renderer::Apart(workers) => workers.answers(&conversation, jobs),
            Renderer::Here(rendering) => {
                let most = bounds::text_bytes(conversation.bytes);
                rendering.answers(&Variables::of(&conversation), jobs, most)
            }
        }
    }

    /// Calls `render` for the row at `place`. A row after one that exceeded a bound is not
    /// rendered.
    ///
    /// # Errors
    /// [`DataError::Row`] where the template refuses the row. [`DataError::Template`] with the
    /// first row that exceeded a bound.
    pub(super) fn of_row<T>(
        &self,
        place: &RowLocation,
        render: impl FnOnce(&Self) -> Result<T, Fault>,
    ) -> Result<T, DataError> {
        let known = || self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((first, met)) = &*known()
            && first.number < place.number
        {
            return Err(out_of_bounds(Some(first.clone()), &self.origin, met));
        }
        render(self).map_err(|fault| match fault {
            Fault::Raised(reason) => RowFault::Conversation {
                origin: self.origin.clone(),
                reason,
            }
            .at(place.clone()),
            Fault::Met(met) => {
                let error = out_of_bounds(Some(place.clone()), &self.origin, &met);
                let mut known = known();
                if known
                    .as_ref()
                    .is_none_or(|(first, _)| place.number < first.number)
                {
                    *known = Some((place.clone(), met));
                }
                error
            }
        })
    }
}

/// Compiles `source` in the process that is to render it.
fn renderer(
    source: &str,
    special_tokens: BTreeMap<String, String>,
    program: Option<&OsString>,
) -> Result<Renderer, Fault> {
    bounds::check(source).map_err(Fault::Met)?;
    let source = source.to_owned();
    if let Some(program) = program {
        let opening = Opening {
            source,
            special_tokens,
        };
        return Workers::open(program.clone(), opening).map(Renderer::Apart);
    }
    let compiling = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || Rendering::new(&source, special_tokens));
    let compiling = compiling.map_err(|error| format!("no thread can be started: {error}"))?;
    let rendering = compiling.join().expect("a panic is contained")?;
    Ok(Renderer::Here(Box::new(rendering)))
}

/// The text without its marks, and the byte ranges that they enclosed.
pub(super) fn generated(marked: &str) -> Result<(String, Vec<Range<usize>>), String> {
    let (mut text, mut spans, mut begin) = (String::new(), Vec::new(), None);
    for letter in marked.chars() {
        match (letter, begin) {
            (BEGIN, None) => begin = Some(text.len()),
            (END, Some(start)) => {
                spans.push(start..text.len());
                begin = None;
            }
            (BEGIN | END, _) => {
                return Err(format!(
                    "the row holds the noncharacter {letter:?}; remove it"
                ));
            }
            _ => text.push(letter),
        }
    }
    Ok((text, spans))
}

fn out_of_bounds(row: Option<RowLocation>, origin: &str, met: &Met) -> DataError {
    TemplateError::Bound {
        row: row.map_or_else(String::new, |place| format!("{place}: ")),
        origin: origin.to_owned(),
        met: met.to_string(),
    }
    .into()
}

#[cfg(test)]
mod tests;
