//! Reading a trace file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Record;
use crate::engine::Nanos;

/// A whole trace in memory: 8 bytes per block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    block_tokens: u32,
    requests: Vec<Request>,
    blocks: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    at: Nanos,
    input_tokens: u32,
    output_tokens: u32,
    /// End of its blocks in [`Trace::blocks`]; they begin where those before it end.
    blocks_end: usize,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read the trace: {0}")]
    Read(#[from] io::Error),
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("the trace has no requests")]
    Empty,
}

/// A line of the file.
#[derive(Deserialize)]
struct Line {
    /// Milliseconds; some traces have fractions.
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Longest prompt or answer accepted: what a 32-bit sum of both holds with room to spare.
const MAX_TOKENS: u32 = 1 << 30;
/// Latest timestamp: thirty years.
const MAX_TIMESTAMP_MS: f64 = 1e12;

impl Trace {
    /// Reads a file with blocks of `block_tokens` (at least 1) tokens.
    ///
    /// # Errors
    /// With the number of the line that is no request: not JSON, a field missing or out of range,
    /// more or fewer blocks than its length has, or earlier than the line before.
    pub fn open(path: &Path, block_tokens: u32) -> Result<Self, TraceError> {
        Self::read(BufReader::new(File::open(path)?), block_tokens)
    }

    /// [`Trace::open`] from any source.
    pub fn read(source: impl BufRead, block_tokens: u32) -> Result<Self, TraceError> {
        let block_tokens = block_tokens.max(1);
        let mut trace = Self { block_tokens, requests: Vec::new(), blocks: Vec::new() };
        let mut first = None;
        for (index, line) in source.lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let at_line = |what| TraceError::Line { line: index + 1, what };
            let request = parse(&line, block_tokens).map_err(at_line)?;
            let first = *first.get_or_insert(request.timestamp);
            let at = ((request.timestamp - first) * 1e6).round();
            let last = trace.requests.last().map_or(0, |last| last.at);
            if at < last as f64 {
                return Err(at_line("its timestamp is before that of the line before".into()));
            }
            trace.push(at as Nanos, &request);
        }
        if trace.requests.is_empty() { Err(TraceError::Empty) } else { Ok(trace) }
    }

    /// Number of requests, at least 1.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Never: a trace has at least one request.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// Request `index`, in the file's order, which is that of their times.
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        let Request { at, input_tokens, output_tokens, blocks_end } = *self.requests.get(index)?;
        let from = match index {
            0 => 0,
            _ => self.requests[index - 1].blocks_end,
        };
        let blocks = &self.blocks[from..blocks_end];
        Some(Record { at, input_tokens, output_tokens, blocks })
    }

    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// When each request came.
    pub fn times(&self) -> Vec<Nanos> {
        self.requests.iter().map(|request| request.at).collect()
    }

    /// Different blocks in the whole trace.
    pub fn distinct_blocks(&self) -> usize {
        self.blocks.iter().collect::<HashSet<_>>().len()
    }

    /// Longest prompt and answer together, in tokens.
    pub fn longest_request(&self) -> u32 {
        let longest = self.requests.iter().map(|r| r.input_tokens + r.output_tokens).max();
        longest.unwrap_or(0)
    }

    fn push(&mut self, at: Nanos, line: &Line) {
        let identity = |id: &u64| xxh3_64_with_seed(&id.to_le_bytes(), IDENTITY_SEED);
        self.blocks.extend(line.hash_ids.iter().map(identity));
        self.requests.push(Request {
            at,
            input_tokens: line.input_length,
            output_tokens: line.output_length.max(1),
            blocks_end: self.blocks.len(),
        });
    }
}

/// Any number: it only has to stay the same.
const IDENTITY_SEED: u64 = 0x7261_6365;

fn parse(line: &str, block_tokens: u32) -> Result<Line, String> {
    let request: Line = serde_json::from_str(line).map_err(|error| {
        // The parser counts lines too, always 1 here.
        let text = error.to_string();
        text.split(" at line ").next().unwrap_or_default().to_owned()
    })?;
    let Line { timestamp, input_length, output_length, ref hash_ids } = request;
    if !(0.0..=MAX_TIMESTAMP_MS).contains(&timestamp) {
        return Err(format!("timestamp {timestamp} is not a number of milliseconds"));
    }
    if input_length == 0 || input_length > MAX_TOKENS || output_length > MAX_TOKENS {
        return Err(format!(
            "a prompt of {input_length} and an answer of {output_length} tokens: both must be at \
             most {MAX_TOKENS}, the prompt at least 1"
        ));
    }
    let blocks = input_length.div_ceil(block_tokens) as usize;
    if hash_ids.len() != blocks {
        return Err(format!(
            "{} hash_ids, but {input_length} tokens are {blocks} blocks of {block_tokens}; for \
             blocks of another size set --block-size",
            hash_ids.len()
        ));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(text.as_bytes(), 512)
    }

    fn line(timestamp: &str, input: u32, ids: &str) -> String {
        format!(
            r#"{{"timestamp": {timestamp}, "input_length": {input}, "output_length": 7, "hash_ids": [{ids}], "more": 1}}"#
        )
    }

    #[test]
    fn requests_have_times_from_the_first_and_equal_blocks_where_the_ids_are() {
        let text = [line("1000", 1030, "46, 47, 48"), String::new(), line("1002.5", 1024, "46, 9")];
        let trace = read(&text.join("\n")).unwrap();
        assert_eq!((trace.len(), trace.distinct_blocks(), trace.longest_request()), (2, 4, 1037));
        assert_eq!(trace.times(), [0, 2_500_000]);
        let (first, second) = (trace.get(0).unwrap(), trace.get(1).unwrap());
        assert_eq!((first.input_tokens, first.output_tokens, first.blocks.len()), (1030, 7, 3));
        assert_eq!((second.input_tokens, second.blocks.len()), (1024, 2));
        assert_eq!(first.blocks[0], second.blocks[0]);
        assert_ne!(first.blocks[1], second.blocks[1]);
        assert_eq!(trace.get(2), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = line("5", 512, "1");
        for (bad, words) in [
            ("{".to_owned(), "EOF"),
            ("[1]".to_owned(), "invalid"),
            (r#"{"timestamp":5}"#.to_owned(), "missing field `input_length`"),
            (line("5", 513, "1"), "1 hash_ids, but 513 tokens are 2 blocks of 512"),
            (line("5", 0, ""), "at least 1"),
            (line("-1", 512, "1"), "timestamp -1"),
            (line("4", 512, "1"), "before that of the line before"),
            (line("\"x\"", 512, "1"), "invalid type"),
            (line("5", 512, "-1"), "invalid value"),
        ] {
            let error = read(&format!("{good}\n\n{bad}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 3: ") && error.contains(words), "{bad}: {error}");
        }
        assert!(matches!(read("\n"), Err(TraceError::Empty)));
        let missing = Trace::open(Path::new("/no/such/file"), 512);
        assert!(matches!(missing, Err(TraceError::Read(_))));
    }

    #[test]
    fn an_answer_has_at_least_one_token() {
        let text = r#"{"timestamp":0,"input_length":1,"output_length":0,"hash_ids":[5]}"#;
        assert_eq!(read(text).unwrap().get(0).unwrap().output_tokens, 1);
    }
}
