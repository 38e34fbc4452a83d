//! Prompts -> answers, token by token: several sequences at once over one cache of keys and values.
//!
//! A pass either takes in prompts (packed, long ones in parts) or makes one more token of every
//! sequence at work. A sequence that ends leaves its slot to the next prompt. A token's bits depend
//! on its own sequence alone, so an answer does not depend on what else is answered.

use std::time::Instant;

use espalier_data::MicroBatch;
use espalier_engine::executor::Executor;
use espalier_plan::plan::Generation;
use espalier_system::failure::UsageError;
use espalier_system::stop::StopFlag;

use super::not_finite::LogitsNotFinite;
use super::sampling::{Draw, Sampling};
use crate::Error;

/// A prompt to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its tokens.
    pub prompt: &'a [i32],
    /// Most tokens of the answer.
    pub max_new_tokens: usize,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its tokens, without the end token.
    pub tokens: Vec<i32>,
    /// Why it ends.
    pub end: End,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model made this end token.
    Token(i32),
    /// It has as many tokens as were asked for.
    Length,
    /// Prompt and answer fill the context.
    Context,
    /// Whoever watches said so.
    Stopped,
}

/// Whether an answer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It ends here.
    Stop,
}

/// Tokens and times so far; prompts and answers apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Tokens of prompts taken in.
    pub prefill_tokens: u64,
    /// Their time in seconds.
    pub prefill_secs: f64,
    /// Tokens made by passes of their own; the first of each answer comes with its prompt.
    pub decode_tokens: u64,
    /// Their time in seconds.
    pub decode_secs: f64,
}

/// Makes answers with an executor's own weights.
pub struct Generator<'a> {
    executor: &'a Executor,
    generation: Generation,
    sampling: Sampling,
    ends: Vec<i32>,
    stop: StopFlag,
    /// The tokens whose keys and values each slot holds.
    held: Vec<Vec<i32>>,
    /// Prompts answered so far: draws of another prompt are other ones.
    answered: usize,
    speed: Speed,
}

impl<'a> Generator<'a> {
    /// A generator with an empty cache, which ends answers at any of the tokens `ends`.
    ///
    /// # Errors
    /// A sampling that means nothing, a plan without a generation.
    pub fn new(
        executor: &'a Executor,
        sampling: Sampling,
        ends: &[i32],
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        sampling.check()?;
        let generation = executor.generation().ok_or_else(|| {
            Error::Usage(UsageError {
                message: "the plan of this run generates nothing".to_owned(),
                next_step: "open the session to generate".to_owned(),
            })
        })?;
        Ok(Generator {
            executor,
            generation,
            sampling,
            ends: ends.to_vec(),
            stop: stop.clone(),
            held: vec![Vec::new(); generation.cache.slots as usize],
            answered: 0,
            speed: Speed::default(),
        })
    }

    /// Tokens of prompt and answer together at most.
    pub fn context(&self) -> usize {
        self.generation.cache.capacity as usize
    }

    /// Tokens and times so far.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// Answers all `requests`, in their order. `watch` sees each token that is no end token, with
    /// the index of its request, as it is made.
    ///
    /// # Errors
    /// A prompt that is empty or fills the context, before anything is run;
    /// [`Error::LogitsNotFinite`], [`Error::Interrupted`]; what the backend or `watch` reports.
    pub fn answer(
        &mut self,
        requests: &[Request<'_>],
        watch: &mut dyn FnMut(usize, i32) -> Result<Flow, Error>,
    ) -> Result<Vec<Answer>, Error> {
        requests
            .iter()
            .try_for_each(|request| self.check(request.prompt))?;
        let mut answers: Vec<Option<Answer>> = vec![None; requests.len()];
        let mut waiting = requests.iter().enumerate();
        let mut live: Vec<Live> = Vec::new();
        loop {
            for slot in 0..self.held.len() {
                if live.iter().all(|one| one.slot != slot)
                    && let Some((index, request)) = waiting.next()
                {
                    live.push(self.admit(slot, index, request));
                }
            }
            if live.is_empty() {
                break;
            }
            self.stop.check()?;
            let made = self.pass(&mut live)?;
            for (at, token) in made {
                let one = &mut live[at];
                if self.ends.contains(&token) {
                    one.end = Some(End::Token(token));
                    continue;
                }
                one.tokens.push(token);
                let flow = watch(one.request, token)?;
                let full = one.tokens.len() >= self.generation.cache.capacity as usize;
                one.end = match (flow, one.made() >= one.most) {
                    (Flow::Stop, _) => Some(End::Stopped),
                    (_, true) => Some(End::Length),
                    _ if full => Some(End::Context),
                    _ => None,
                };
            }
            live.retain_mut(|one| match one.end {
                None => true,
                Some(end) => {
                    let tokens = one.tokens.split_off(one.prompt);
                    answers[one.request] = Some(Answer { tokens, end });
                    false
                }
            });
        }
        self.answered += requests.len();
        let answered = answers.into_iter();
        Ok(answered
            .map(|answer| answer.expect("every request was answered"))
            .collect())
    }

    /// Refuses a prompt that cannot be answered.
    fn check(&self, prompt: &[i32]) -> Result<(), Error> {
        let context = self.context();
        if prompt.is_empty() {
            return Err(Error::Usage(UsageError {
                message: "the prompt is empty: expected one token at least".to_owned(),
                next_step: "write something to continue".to_owned(),
            }));
        }
        if prompt.len() >= context {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "the prompt has {} tokens, and the context {context}: nothing is left for an answer",
                    prompt.len()
                ),
                next_step: "shorten the prompt, or raise --context as far as the model allows"
                    .to_owned(),
            }));
        }
        Ok(())
    }

    /// Gives a request its slot, and keeps of the cache what both begin with.
    fn admit(&mut self, slot: usize, index: usize, request: &Request<'_>) -> Live {
        let held = &mut self.held[slot];
        let pairs = held.iter().zip(request.prompt);
        let common = pairs.take_while(|(held, wanted)| held == wanted).count();
        // The last token's logits are wanted, so it is run in any case.
        held.truncate(common.min(request.prompt.len() - 1));
        Live {
            request: index,
            draw: (self.answered + index) as u32,
            slot,
            prompt: request.prompt.len(),
            most: request.max_new_tokens,
            tokens: request.prompt.to_vec(),
            end: (request.max_new_tokens == 0).then_some(End::Length),
        }
    }

    /// Runs one pass and returns the tokens that it made, each with the index of its sequence in
    /// `live`.
    fn pass(&mut self, live: &mut [Live]) -> Result<Vec<(usize, i32)>, Error> {
        let begin = Instant::now();
        let unfinished = |one: &Live| one.end.is_none();
        let reading = |one: &Live| self.held[one.slot].len() < one.prompt;
        let prefill = live.iter().any(|one| unfinished(one) && reading(one));
        let mut micro = MicroBatch {
            cu_seqlens: vec![0],
            ..MicroBatch::default()
        };
        let (mut parts, mut wanted) = (Vec::new(), Vec::new());
        for (at, one) in live.iter().enumerate().filter(|(_, one)| unfinished(one)) {
            if prefill && !reading(one) {
                continue;
            }
            let (first, room) = (
                self.held[one.slot].len(),
                self.generation.max_tokens as usize - micro.tokens.len(),
            );
            let part = &one.tokens[first..one.tokens.len().min(first + room)];
            if part.is_empty() {
                continue;
            }
            micro.tokens.extend(part);
            micro
                .positions
                .extend((first..first + part.len()).map(|position| position as i32));
            micro.cu_seqlens.push(micro.tokens.len() as i32);
            micro.sequences.push(one.slot as i32);
            parts.push((one.slot, part.to_vec()));
            if first + part.len() == one.tokens.len() {
                wanted.push((at, micro.tokens.len() as u64 - 1));
            }
        }
        let made = self.choose(&micro, &wanted, live)?;
        for (slot, part) in parts {
            self.held[slot].extend(part);
        }
        let (secs, tokens) = (begin.elapsed().as_secs_f64(), micro.tokens.len() as u64);
        if prefill {
            self.speed.prefill_tokens += tokens;
            self.speed.prefill_secs += secs;
        } else {
            self.speed.decode_tokens += tokens;
            self.speed.decode_secs += secs;
        }
        Ok(made)
    }

    /// Runs a micro-batch and chooses the token after each of those `wanted`.
    fn choose(
        &self,
        micro: &MicroBatch,
        wanted: &[(usize, u64)],
        live: &[Live],
    ) -> Result<Vec<(usize, i32)>, Error> {
        let rows: Vec<u64> = wanted.iter().map(|&(_, row)| row).collect();
        let mut chosen = Vec::with_capacity(wanted.len());
        self.executor.infer(micro, &rows, &mut |row, logits| {
            let at = wanted[row].0;
            let draw = Draw {
                prompt: live[at].draw,
                place: live[at].made() as u32,
            };
            chosen.push((at, self.sampling.choose(logits, draw)));
        })?;
        let token = |(at, token): (usize, Option<i32>)| match token {
            Some(token) => Ok((at, token)),
            None => Err(Error::LogitsNotFinite(LogitsNotFinite {
                token: live[at].made() as u64 + 1,
            })),
        };
        chosen.into_iter().map(token).collect()
    }
}

/// A sequence at work.
struct Live {
    request: usize,
    /// The prompt's number for draws.
    draw: u32,
    slot: usize,
    /// Tokens of the prompt.
    prompt: usize,
    /// Most tokens of the answer.
    most: usize,
    /// Prompt and answer so far.
    tokens: Vec<i32>,
    end: Option<End>,
}

impl Live {
    /// Tokens of the answer so far.
    fn made(&self) -> usize {
        self.tokens.len() - self.prompt
    }
}
