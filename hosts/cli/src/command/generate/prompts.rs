//! The command line, standard input or a file -> prompts, and their tokens.

use std::io::Read;
use std::path::Path;

use espalier_data::TextTokenizer;
use espalier_system::failure::UsageError;
use espalier_system::files::{FileKind, read_regular_text};
use espalier_trainer::error::Error;
use serde_json::Value;

use crate::arguments::GenerateArguments;

/// The prompts that were given.
///
/// # Errors
/// [`Error::Usage`] for no prompt without `--chat`, an empty prompt, or malformed lines.
pub fn read(arguments: &GenerateArguments) -> Result<Vec<String>, Error> {
    let prompts = match (&arguments.prompt, &arguments.prompts) {
        (Some(prompt), _) if prompt == "-" => vec![from_input()?],
        (Some(prompt), _) => vec![prompt.clone()],
        (None, Some(path)) => from_file(path)?,
        (None, None) if arguments.chat => Vec::new(),
        (None, None) => {
            return Err(wrong(
                "no prompt was given".to_owned(),
                "write one with --prompt TEXT, --prompt - to read it from standard input, or talk with --chat",
            ));
        }
    };
    match prompts.iter().position(|prompt| prompt.trim().is_empty()) {
        None => Ok(prompts),
        Some(index) => Err(wrong(
            format!("prompt {} is empty", index + 1),
            "write something to continue",
        )),
    }
}

/// The tokens of a prompt.
///
/// # Errors
/// A text that the tokenizer cannot encode.
pub fn encode(tokenizer: &TextTokenizer, prompt: &str) -> Result<Vec<i32>, Error> {
    tokenizer.encode(prompt).map_err(unencodable)
}

/// The error for a text that the tokenizer cannot encode.
pub fn unencodable(reason: String) -> Error {
    let message = format!("the tokenizer cannot encode the prompt: {reason}");
    wrong(message, "write it otherwise")
}

/// The error for standard input that gives no text.
pub fn unreadable(error: &std::io::Error) -> Error {
    let message = format!("cannot read a prompt from standard input: {error}");
    wrong(message, "give UTF-8 text")
}

/// All of standard input without the newline at its end.
fn from_input() -> Result<String, Error> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| unreadable(&error))?;
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}

/// One prompt a line: plain text, or JSON where the file's name ends in `.jsonl`.
fn from_file(path: &Path) -> Result<Vec<String>, Error> {
    let text = read_regular_text(path, FileKind::Prompts).map_err(|error| {
        let message = format!("cannot read prompts from {}: {error}", path.display());
        wrong(message, "check the path; prompts are UTF-8 text")
    })?;
    let json = path
        .extension()
        .is_some_and(|extension| extension == "jsonl");
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let prompts: Vec<String> = lines
        .map(|(index, line)| {
            if !json {
                Ok(line.to_owned())
            } else {
                of_json(line).ok_or_else(|| {
                    let place = format!("{}:{}", path.display(), index + 1);
                    let message =
                        format!("{place}: expected a JSON text, or an object with a text `prompt`");
                    wrong(message, "correct that line")
                })
            }
        })
        .collect::<Result<_, Error>>()?;
    if !prompts.is_empty() {
        Ok(prompts)
    } else {
        Err(wrong(
            format!("{} has no prompt", path.display()),
            "write one a line",
        ))
    }
}

fn of_json(line: &str) -> Option<String> {
    match serde_json::from_str(line).ok()? {
        Value::String(prompt) => Some(prompt),
        value => Some(value.get("prompt")?.as_str()?.to_owned()),
    }
}

fn wrong(message: String, next_step: &str) -> Error {
    Error::Usage(UsageError {
        message,
        next_step: next_step.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_prompt_is_a_text_or_an_object_with_one() {
        assert_eq!(of_json("\"a b\"").as_deref(), Some("a b"));
        assert_eq!(
            of_json("{\"prompt\": \"a\", \"id\": 3}").as_deref(),
            Some("a")
        );
        assert_eq!(of_json("{\"prompt\": 3}"), None);
        assert_eq!(of_json("a b"), None);
    }
}
