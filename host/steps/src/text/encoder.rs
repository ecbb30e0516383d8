//! A tokenizer with truncation and special tokens, shared by `tokenize` and `chunk`.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use tokenizers::{
    Encoding, NormalizedString, Normalizer as _, PostProcessor, PostProcessorWrapper, Tokenizer, TruncationDirection,
    TruncationParams, TruncationStrategy, truncate_encodings,
};

use super::batch_padder::{self, MAX_TOKENS};
use super::offload::{Offload, catch_tokenizer_panic};
use super::text_input;
use super::tokenizer_file::TokenizerFile;
use super::tokenizer_scan::scan;
use super::tokenizer_speed::encodes_in_linear_time;
use super::unigram_scores::with_python_rounding;
use crate::deadline::{Deadline, Throughput};
use crate::operation::Inputs;
use gpux_core::{BuildError, StepFailure, foreign_file};

/// The longest text, as the tokenizer's normalizer makes it, in bytes. On each core that there is, a step may be at as
/// much at a time.
const MAX_TEXT: usize = 4 << 20;

/// A usual normalizer makes a text less than so many times longer: Unicode's forms up to 11 times (UAX #15, 9.2), what
/// replaces spaces 3 times. A hostile one is bounded by the memory of its process (`--isolation pipeline`).
const GROWTH: usize = 18;

/// Bytes that are normalized at a time to measure a text.
const PIECE: usize = 16 << 10;

/// Bytes that the tokenizers crate holds for a byte of text, at most: each may be a word, and a token.
const PER_BYTE: usize = 512;

/// Nanoseconds for 1024 bytes of text, at the fastest: 100 MB a second.
const FASTEST: u64 = 10_000;

/// How a text that is too long is truncated.
#[derive(Clone, Copy)]
pub(super) struct TruncationRule {
    /// most tokens of a text or pair, special ones included
    pub(super) max_length: usize,
    /// the end that goes; `None`: as the tokenizer's file says
    pub(super) side: Option<TruncationDirection>,
    pub(super) strategy: TruncationStrategy,
    /// how many tokens a window shares with the one before; `None` where only the first is kept
    pub(super) stride: Option<usize>,
}

/// What one request changes of how its texts are cut.
#[derive(Clone, Copy, Default)]
pub(super) struct RequestLimits {
    /// the end that goes
    pub(super) side: Option<TruncationDirection>,
    /// most tokens of the text, special ones not counted
    pub(super) text: Option<usize>,
    /// most tokens of its pair
    pub(super) pair: Option<usize>,
}

/// Text → tokens.
#[derive(Clone)]
pub(super) struct Encoder {
    pub(super) core: Arc<EncoderCore>,
    pub(super) file: String,
    pub(super) offload: Arc<Offload>,
}

/// The part of an encoder that threads share.
pub(super) struct EncoderCore {
    /// without its post-processor; where a single text is just cut, it stops at that many tokens
    tokenizer: Tokenizer,
    processor: Option<PostProcessorWrapper>,
    /// the tokenizer that never stops early, made when the first pair has to be cut
    untruncated: OnceLock<Tokenizer>,
    stops_early: bool,
    throughput: Throughput,
    add_special_tokens: bool,
    cut: Option<TruncationRule>,
    /// whether each token's place in the text is wanted
    track_offsets: bool,
}

/// Reads a `tokenizer.json`.
pub(crate) fn read(file: &TokenizerFile) -> Result<Tokenizer, BuildError> {
    let unusable = |why: String| {
        let why = other_file(&file.bytes).unwrap_or(why);
        let message = format!("`{}` is no usable tokenizer: {why}", file.path.display());
        BuildError::option("tokenizer", message)
    };
    scan(&file.bytes).map_err(unusable)?;
    catch_tokenizer_panic(|| Tokenizer::from_bytes(with_python_rounding(&file.bytes))).map_err(unusable)
}

/// What the file is, if it is one that is often taken for a `tokenizer.json`.
fn other_file(bytes: &[u8]) -> Option<String> {
    /// The longest file whose JSON is read for this.
    const LONGEST: usize = 1 << 20;
    const SAVE: &str = "the whole tokenizer is in `tokenizer.json`, which \
        `AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)` of Python's transformers writes";
    if let Some(what) = foreign_file(bytes) {
        return Some(what);
    }
    let keys: Map<String, Json> = serde_json::from_slice(bytes.get(..LONGEST).unwrap_or(bytes)).ok()?;
    if keys.contains_key("tokenizer_class") {
        return Some(format!("it is a tokenizer_config.json; {SAVE}"));
    }
    (!keys.contains_key("model")).then(|| format!("it has no `model`; {SAVE}"))
}

/// The texts of a request; where there are pairs, the second text of each.
pub(super) struct EncoderInput {
    pub(super) texts: Vec<String>,
    pub(super) pairs: Option<Vec<String>>,
}

impl EncoderInput {
    fn bytes(&self) -> usize {
        self.texts.iter().chain(self.pairs.iter().flatten()).map(String::len).sum()
    }
}

impl Encoder {
    pub(super) fn new(
        mut tokenizer: Tokenizer,
        file: &TokenizerFile,
        add_special_tokens: bool,
        cut: Option<TruncationRule>,
        track_offsets: bool,
    ) -> Result<Self, BuildError> {
        let side = tokenizer.get_truncation().map_or(TruncationDirection::Right, |truncation| truncation.direction);
        let cut = cut.map(|cut| TruncationRule { side: Some(cut.side.unwrap_or(side)), ..cut });
        let processor = tokenizer.get_post_processor().cloned();
        // The options override the file's truncation. Removing truncation cannot fail.
        let _ = tokenizer.with_truncation(None);
        tokenizer.with_padding(None);
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        let is_linear = encodes_in_linear_time(&tokenizer);
        let mut core = EncoderCore {
            tokenizer,
            processor,
            untruncated: OnceLock::new(),
            stops_early: false,
            throughput: Throughput::new(FASTEST),
            add_special_tokens,
            cut,
            track_offsets,
        };
        core.check_room(false).map_err(|message| BuildError::option("max_length", message))?;
        core.stop_early().map_err(|why| BuildError::option("tokenizer", why))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (core, offload) = (Arc::new(core), Offload::new(is_linear, MAX_TEXT.saturating_mul(cores)));
        Ok(Self { core, file: file.path.display().to_string(), offload: Arc::new(offload) })
    }

    /// Memory that `bytes` of text take for a while.
    pub(super) const fn buffers(bytes: usize) -> usize {
        bytes.saturating_mul(PER_BYTE)
    }

    /// The tokens of each text or pair; truncated tokens are its `overflowing`. Ends early if `size` of all of them
    /// is more than [`MAX_TOKENS`].
    pub(super) fn encode(
        &self,
        given: EncoderInput,
        deadline: &Deadline,
        size: impl Fn(&Encoding) -> usize + Send + 'static,
    ) -> Result<Vec<Encoding>, StepFailure> {
        self.encode_within(given, RequestLimits::default(), deadline, size)
    }

    /// [`encode`](Self::encode) for a request with limits of its own.
    pub(super) fn encode_within(
        &self,
        given: EncoderInput,
        limits: RequestLimits,
        deadline: &Deadline,
        size: impl Fn(&Encoding) -> usize + Send + 'static,
    ) -> Result<Vec<Encoding>, StepFailure> {
        let core = self.core.clone();
        self.offload.run(given.bytes(), deadline, move |deadline| core.encode(given, limits, deadline, size))
    }

    /// Reads the inputs `text` and `pair`. One text beside a list stands beside each text of the list.
    pub(super) fn read_input(&self, inputs: &mut Inputs<'_>) -> Result<EncoderInput, StepFailure> {
        let (name, given) = inputs.named()?;
        let is_one = text_input::is_one(&given);
        let mut texts = text_input::read(given, name)?;
        let Some(given) = inputs.optional() else {
            text_input::check_size(texts.iter())?;
            return Ok(EncoderInput { texts, pairs: None });
        };
        let pair_is_one = text_input::is_one(&given);
        let mut pairs = text_input::read(given, "pair")?;
        if pairs.len() != texts.len() && !is_one && !pair_is_one {
            let message = format!(
                "`text` holds {} texts, but `pair` {}; give one text, which is no list, to pair it with each",
                texts.len(),
                pairs.len()
            );
            return Err(StepFailure::InvalidInput(message));
        }
        self.core.check_room(true).map_err(StepFailure::InvalidInput)?;
        let count = texts.len().max(pairs.len());
        // Copies are bounded before they are made.
        let copied = |list: &[String]| list.iter().cycle().take(count).map(String::len).sum::<usize>();
        text_input::check_bytes(copied(&texts).saturating_add(copied(&pairs)))?;
        for list in [&mut texts, &mut pairs] {
            if let [one] = list.as_slice() {
                *list = vec![one.clone(); count];
            }
        }
        Ok(EncoderInput { texts, pairs: Some(pairs) })
    }

    /// A step's options, with the tokenizer.
    pub(super) fn details(&self, options: &impl Serialize) -> serde_json::Value {
        let mut details = serde_json::to_value(options).unwrap_or_default();
        let own = json!({ "file": self.file, "vocabulary": self.core.tokenizer.get_vocab_size(true) });
        if let (Some(details), serde_json::Value::Object(own)) = (details.as_object_mut(), own) {
            details.extend(own);
        }
        details
    }
}

impl EncoderCore {
    /// The tokenizer without its post-processor.
    pub(super) const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Lets the tokenizer skip what of a single text would be cut anyway.
    fn stop_early(&mut self) -> Result<(), String> {
        let room = self.cut.map_or(0, |cut| cut.max_length - self.special_tokens(false));
        let Some(TruncationRule { side: Some(direction), strategy, stride: None, .. }) = self.cut else {
            return Ok(());
        };
        // From the left it would count words from where it stopped.
        let miscounts = self.track_offsets && direction == TruncationDirection::Left;
        if room == 0 || miscounts || strategy == TruncationStrategy::OnlySecond {
            return Ok(());
        }
        // With one token more, [`EncoderCore::cut`] sees that something is cut.
        let max_length = room + 1;
        let params = TruncationParams { direction, max_length, strategy: TruncationStrategy::LongestFirst, stride: 0 };
        self.stops_early = true;
        catch_tokenizer_panic(|| self.tokenizer.with_truncation(Some(params)).map(|_| ()))
    }

    /// How many special tokens are added to a text or a pair.
    fn special_tokens(&self, pair: bool) -> usize {
        let added = || self.processor.as_ref().map_or(0, |processor| processor.added_tokens(pair));
        if self.add_special_tokens { added() } else { 0 }
    }

    /// Whether something is left for text where the special tokens are added.
    fn check_room(&self, pair: bool) -> Result<(), String> {
        let special = self.special_tokens(pair);
        match self.cut {
            Some(TruncationRule { max_length, .. }) if max_length < special => {
                Err(format!("`max_length` is {max_length}, but the special tokens alone are {special}"))
            }
            Some(TruncationRule { max_length, stride: Some(stride), .. }) if max_length - special <= stride => {
                Err(format!(
                    "`stride` is {stride}, but a window of {max_length} has room for only {} tokens beside {special} \
                 special ones",
                    max_length - special
                ))
            }
            _ => Ok(()),
        }
    }

    fn encode(
        &self,
        EncoderInput { texts, pairs }: EncoderInput,
        limits: RequestLimits,
        deadline: &Deadline,
        size: impl Fn(&Encoding) -> usize,
    ) -> Result<Vec<Encoding>, StepFailure> {
        let mut pairs = pairs.map(Vec::into_iter);
        let mut tokens = 0_usize;
        let encode = |text: String| {
            let pair = pairs.as_mut().and_then(Iterator::next);
            let encoding = self.encode_one(text, pair, limits, deadline)?;
            tokens = tokens.saturating_add(size(&encoding));
            if tokens > MAX_TOKENS { Err(batch_padder::too_many()) } else { Ok(encoding) }
        };
        texts.into_iter().map(encode).collect()
    }

    /// The tokens of a text or a pair. What would end after the request's time is not begun.
    fn encode_one(
        &self,
        text: String,
        pair: Option<String>,
        limits: RequestLimits,
        deadline: &Deadline,
    ) -> Result<Encoding, StepFailure> {
        for text in std::iter::once(&text).chain(&pair) {
            self.check_size(text, deadline)?;
        }
        let bytes = text.len() + pair.as_ref().map_or(0, String::len);
        self.timed(bytes, deadline, || self.encoding(text, pair, limits))
    }

    /// All tokens of a text, with their places in it.
    pub(super) fn encode_whole(
        &self,
        text: String,
        add_special_tokens: bool,
        deadline: &Deadline,
    ) -> Result<Encoding, StepFailure> {
        self.check_size(&text, deadline)?;
        self.timed(text.len(), deadline, || {
            let encoding = self.untruncated().encode_char_offsets(text, false)?;
            self.processed(encoding, None, add_special_tokens)
        })
    }

    fn timed(
        &self,
        bytes: usize,
        deadline: &Deadline,
        encode: impl FnOnce() -> tokenizers::Result<Encoding>,
    ) -> Result<Encoding, StepFailure> {
        let encoding = self.throughput.run(bytes, deadline, || catch_tokenizer_panic(encode))?;
        deadline.check()?;
        encoding.map_err(|why| StepFailure::InvalidInput(format!("the text cannot be tokenized: {why}")))
    }

    /// Rejects a text that is too long before or after normalization. The normalizer measures it, piece by piece, if it
    /// may become too long.
    fn check_size(&self, text: &str, deadline: &Deadline) -> Result<(), StepFailure> {
        let too_long = |why: &str| {
            StepFailure::InvalidInput(format!(
                "a text of {} bytes is too long for the tokenizer, which takes {MAX_TEXT} at once{why}; cut it",
                text.len()
            ))
        };
        if text.len() > MAX_TEXT {
            return Err(too_long(""));
        }
        let Some(normalizer) = self.tokenizer.get_normalizer().filter(|_| text.len() > MAX_TEXT / GROWTH) else {
            return Ok(());
        };
        let (mut size, mut rest) = (0_usize, text);
        while size <= MAX_TEXT && !rest.is_empty() {
            deadline.check()?;
            let (piece, more) = rest.split_at(rest.floor_char_boundary(PIECE));
            let mut piece = NormalizedString::from(piece);
            let normalized = catch_tokenizer_panic(|| normalizer.normalize(&mut piece));
            size = size.saturating_add(normalized.map_or(usize::MAX, |()| piece.len()));
            rest = more;
        }
        if size <= MAX_TEXT { Ok(()) } else { Err(too_long(", counted as its normalizer makes it")) }
    }

    fn encoding(&self, text: String, pair: Option<String>, limits: RequestLimits) -> tokenizers::Result<Encoding> {
        let is_cut_otherwise = limits.side.is_some() || limits.text.is_some();
        let tokenizer = if pair.is_some() || is_cut_otherwise { self.untruncated() } else { &self.tokenizer };
        let limited = |mut encoding: Encoding, most: Option<usize>| {
            if let Some(most) = most {
                encoding.truncate(most, 0, self.side(limits));
            }
            encoding
        };
        let first = limited(self.tokens(tokenizer, text)?, limits.text);
        let second = pair.map(|pair| self.tokens(self.untruncated(), pair)).transpose()?.map(|mut second| {
            second.set_type_ids(vec![1; second.len()]);
            limited(second, limits.pair)
        });
        let (first, second) = self.cut(first, second, limits)?;
        self.processed(first, second, self.add_special_tokens)
    }

    fn processed(
        &self,
        first: Encoding,
        second: Option<Encoding>,
        add_special_tokens: bool,
    ) -> tokenizers::Result<Encoding> {
        if let Some(processor) = &self.processor {
            return processor.process(first, second, add_special_tokens);
        }
        let both = [Some(first), second].into_iter().flatten().collect();
        let mut both = <dyn PostProcessor>::default_process(both, add_special_tokens)?;
        both.pop().ok_or_else(|| "there are no tokens".into())
    }

    /// The end that goes.
    fn side(&self, limits: RequestLimits) -> TruncationDirection {
        limits.side.or_else(|| self.cut?.side).unwrap_or_default()
    }

    fn tokens(&self, tokenizer: &Tokenizer, text: String) -> tokenizers::Result<Encoding> {
        if self.track_offsets { tokenizer.encode_char_offsets(text, false) } else { tokenizer.encode_fast(text, false) }
    }

    /// The crate (0.23.2) stops at `max_length` tokens of each text of a pair before it decides how much
    /// of each to keep, which then comes out differently than in Python.
    fn untruncated(&self) -> &Tokenizer {
        if !self.stops_early {
            return &self.tokenizer;
        }
        self.untruncated.get_or_init(|| {
            let mut untruncated = self.tokenizer.clone();
            // Taking truncation away cannot fail.
            let _ = untruncated.with_truncation(None);
            untruncated
        })
    }

    fn cut(
        &self,
        first: Encoding,
        second: Option<Encoding>,
        limits: RequestLimits,
    ) -> tokenizers::Result<(Encoding, Option<Encoding>)> {
        let Some(cut) = self.cut else { return Ok((first, second)) };
        let room = cut.max_length - self.special_tokens(second.is_some());
        let lengths = (first.len(), second.as_ref().map_or(0, Encoding::len));
        if lengths.0 + lengths.1 <= room {
            return Ok((first, second));
        }
        let stride = cut.stride.unwrap_or(0);
        let strategy = match (&second, cut.stride) {
            (None, Some(_)) => TruncationStrategy::OnlyFirst,
            _ => cut.strategy,
        };
        if cut.stride.is_some() {
            let (whole, kept) = match strategy {
                TruncationStrategy::OnlySecond => (lengths.1, room.saturating_sub(lengths.0)),
                _ => (lengths.0, room.saturating_sub(lengths.1)),
            };
            if kept == 0 {
                let other = if strategy == TruncationStrategy::OnlySecond { lengths.0 } else { lengths.1 };
                return Err(format!(
                    "the text of the pair that is not cut has {other} tokens, which leaves nothing of {} for the one \
                     that is; shorten it or raise `max_length` (transformers refuses this too)",
                    cut.max_length
                )
                .into());
            }
            if kept <= stride {
                return Err(format!(
                    "beside the other text there is room for {kept} tokens in a window of {}, but windows share {stride}",
                    cut.max_length
                )
                .into());
            }
            let windows = 1 + (whole - kept).div_ceil(kept - stride);
            if windows.saturating_mul(cut.max_length) > MAX_TOKENS {
                return Err(format!("that makes {windows} windows of {} tokens", cut.max_length).into());
            }
        }
        let direction = self.side(limits);
        let params = TruncationParams { direction, max_length: room, strategy, stride };
        truncate_encodings(first, second, &params)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests;
