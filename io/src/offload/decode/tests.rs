use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::*;
use Coding::{Brotli as Br, Deflate, Gzip, Zstd as Zst};

const TEXT: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"a prompt, a prompt, and once more a prompt"}]}"#;
/// `TEXT` by the reference encoders: brotli at quality 11, zstd at level 19 with a checksum.
const BROTLI: &str = "1b6000008cd315f32384751fa19213e42dd5df65b14936e27b334debb074f575ca016bc0656d69d0fce0\
                      fcbe946a9bd926ea7317290747ff420d2b42fe18716ee5792de29e37d3acbb36007f07";
const ZSTD: &str = "28b52ffd24613d0200d2040f12b0b901c724415ab9962524248ea34bc9800a4db467b35e92e52b7b4021e5\
                    46378e579b6a991cbc33ade3f3709f057c4a33524a3db81e7fb2b09e0502003b4bea1a050a106fff0f";
/// 10 MiB of zeros in brotli.
const BROTLI_ZEROS: &str = "cbffff3ff82700e2b14020f7fe2fffff3ff04f00c4611180eefd07";
const ZEROS: usize = 10 << 20;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A brotli stream of one uncompressed meta-block of up to 64 KiB and an empty last one (RFC 7932 §9).
fn brotli(bytes: &[u8]) -> Vec<u8> {
    // WBITS 16 (one 0 bit), ISLAST 0, MNIBBLES 4 (00), MLEN - 1 in 16 bits, ISUNCOMPRESSED 1.
    let header = (bytes.len() as u32 - 1) << 4 | 1 << 20;
    let mut out = header.to_le_bytes()[..3].to_vec();
    out.extend_from_slice(bytes);
    // ISLAST, ISLASTEMPTY.
    out.push(0b11);
    out
}

/// A zstd frame of blocks that repeat one byte, 128 KiB each, with a window of 8 MiB.
fn zstd_run(byte: u8, length: usize) -> Vec<u8> {
    let mut out = b"\x28\xb5\x2f\xfd\x00\x68".to_vec();
    let mut left = length;
    while left > 0 {
        let size = left.min(128 << 10);
        left -= size;
        let header = (size as u32) << 3 | 1 << 1 | u32::from(left == 0);
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.push(byte);
    }
    out
}

fn decoded(codings: &[Coding], body: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let memory = BodyMemory::new(usize::MAX);
    decode_within(codings, body, limit, &memory, &|| false)
}

fn decode_within(
    codings: &[Coding],
    body: &[u8],
    limit: usize,
    memory: &Arc<BodyMemory>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Vec<u8>, DecodeError> {
    let bounds = Bounds { limit, memory, beside: 0, cancelled };
    decode(codings, body, &bounds).map(|decoded| decoded.to_vec())
}

/// `TEXT` in every coding.
fn samples() -> Vec<(Coding, Vec<u8>)> {
    vec![
        (Gzip, gzip(TEXT)),
        (Gzip, [gzip(&TEXT[..20]), gzip(b""), gzip(&TEXT[20..])].concat()),
        (Deflate, zlib(TEXT)),
        (Br, hex(BROTLI)),
        (Br, brotli(TEXT)),
        (Zst, hex(ZSTD)),
        // A skippable frame of 3 bytes before, and an empty frame behind.
        (
            Zst,
            [
                b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(),
                hex(ZSTD),
                zstd_run(0, 1)[..6].to_vec(),
                vec![1, 0, 0],
            ]
            .concat(),
        ),
    ]
}

#[test]
fn every_coding_is_undone() {
    for (coding, body) in samples() {
        assert_eq!(decoded(&[coding], &body, TEXT.len()).as_deref(), Ok(TEXT), "{coding:?}");
    }
}

#[test]
fn codings_on_top_of_each_other_are_undone_from_the_last_to_the_first() {
    let body = brotli(&gzip(&zlib(TEXT)));
    assert_eq!(decoded(&[Deflate, Gzip, Br], &body, 1000).as_deref(), Ok(TEXT));
    let wrong = decoded(&[Deflate, Br, Gzip], &body, 1000);
    assert_eq!(wrong, Err(DecodeError::Broken(Gzip)));
    // The inner one is what is wrong.
    assert_eq!(decoded(&[Deflate, Gzip], &gzip(TEXT), 1000), Err(DecodeError::Broken(Deflate)));
    assert_eq!(decoded(&[Zst, Gzip], &gzip(TEXT), 1000), Err(DecodeError::Broken(Zst)));
    assert_eq!(decoded(&[Br, Gzip], &gzip(TEXT), 1000), Err(DecodeError::Broken(Br)));
}

#[test]
fn data_that_is_cut_off_anywhere_is_refused() {
    for (coding, body) in samples() {
        for length in 0..body.len() {
            match decoded(&[coding], &body[..length], 1000) {
                Err(error) => assert_eq!(error, DecodeError::Broken(coding), "{length}"),
                // Whole members or frames end there, and are whole bodies of their own.
                Ok(part) => assert!(
                    TEXT.starts_with(&part) && part != TEXT || length + 9 >= body.len(),
                    "{coding:?} {length}"
                ),
            }
        }
    }
}

#[test]
fn what_follows_the_data_is_refused() {
    for (coding, mut body) in samples() {
        for garbage in [&b"\0"[..], b"x", b"{\"model\":\"other\"}"] {
            let length = body.len();
            body.extend_from_slice(garbage);
            let outcome = decoded(&[coding], &body, 1000);
            assert_eq!(outcome, Err(DecodeError::Broken(coding)), "{garbage:?}");
            body.truncate(length);
        }
    }
    // Concatenation is part of the formats of gzip and zstd alone.
    for (coding, body) in [(Deflate, zlib(b"a")), (Br, brotli(b"a"))] {
        let twice = [&body[..], &body[..]].concat();
        assert_eq!(decoded(&[coding], &twice, 9), Err(DecodeError::Broken(coding)));
    }
}

#[test]
fn a_wrong_checksum_or_length_is_refused() {
    let flipped = |mut body: Vec<u8>, from_end: usize| {
        let at = body.len() - from_end;
        body[at] ^= 1;
        body
    };
    for (coding, body) in [
        (Gzip, flipped(gzip(TEXT), 8)),
        (Gzip, flipped(gzip(TEXT), 4)),
        (Deflate, flipped(zlib(TEXT), 1)),
        (Zst, flipped(hex(ZSTD), 1)),
        // It announces one byte more than it has (and has no checksum).
        (Zst, b"\x28\xb5\x2f\xfd\x20\x05\x21\0\0abcd".to_vec()),
    ] {
        assert_eq!(decoded(&[coding], &body, 1000), Err(DecodeError::Broken(coding)));
    }
    assert_eq!(
        decoded(&[Zst], b"\x28\xb5\x2f\xfd\x20\x04\x21\0\0abcd", 4).as_deref(),
        Ok(&b"abcd"[..])
    );
}

#[test]
fn other_data_is_refused() {
    for coding in [Gzip, Deflate, Br, Zst] {
        for body in [&b""[..], b"{}", TEXT, b"\x78\x9c\xff\xff\xff\xff", b"\x1f\x8b", &[0xff; 100]]
        {
            assert_eq!(
                decoded(&[coding], body, 1000),
                Err(DecodeError::Broken(coding)),
                "{body:?}"
            );
        }
    }
    // Raw deflate without its zlib frame; a zstd window of 16 MiB; a brotli "large window".
    let raw = zlib(TEXT);
    assert_eq!(
        decoded(&[Deflate], &raw[2..raw.len() - 4], 1000),
        Err(DecodeError::Broken(Deflate))
    );
    assert_eq!(
        decoded(&[Zst], b"\x28\xb5\x2f\xfd\x00\x70\x09\0\0a", 9),
        Err(DecodeError::Broken(Zst))
    );
    assert_eq!(decoded(&[Br], &[0x11, 0x1e, 0x03], 9), Err(DecodeError::Broken(Br)));
}

#[test]
fn the_limit_is_exact() {
    for (coding, body) in samples() {
        assert!(decoded(&[coding], &body, TEXT.len()).is_ok());
        assert_eq!(
            decoded(&[coding], &body, TEXT.len() - 1),
            Err(DecodeError::TooLarge),
            "{coding:?}"
        );
    }
    for (coding, body) in [
        (Gzip, gzip(&vec![0; ZEROS])),
        (Deflate, zlib(&vec![0; ZEROS])),
        (Br, hex(BROTLI_ZEROS)),
        (Zst, zstd_run(0, ZEROS)),
    ] {
        let whole = decoded(&[coding], &body, ZEROS).unwrap();
        assert!(whole.len() == ZEROS && whole.capacity() <= ZEROS + 1, "{}", whole.capacity());
        assert!(whole.iter().all(|&byte| byte == 0));
        assert_eq!(decoded(&[coding], &body, ZEROS - 1), Err(DecodeError::TooLarge));
        assert_eq!(decoded(&[coding], &body, 0), Err(DecodeError::TooLarge));
    }
}

#[test]
fn what_lies_between_two_codings_is_limited_too() {
    // Empty members: 10 MiB of gzip that decode to nothing, in a few KiB of gzip.
    let empty = gzip(b"");
    let members = empty.repeat(ZEROS / empty.len());
    assert_eq!(decoded(&[Gzip], &members, 10).as_deref(), Ok(&b""[..]));
    let outer = gzip(&members);
    assert!(outer.len() < 100_000, "{}", outer.len());
    assert_eq!(decoded(&[Gzip, Gzip], &outer, 1 << 20), Err(DecodeError::TooLarge));
}

#[test]
fn nobody_who_waits_ends_it() {
    let looks = Cell::new(0);
    let cancelled = || {
        looks.set(looks.get() + 1);
        looks.get() > 3
    };
    let memory = BodyMemory::new(usize::MAX);
    // Empty members give no output, so that only the input can notice.
    let members = gzip(b"").repeat(50_000);
    assert_eq!(
        decode_within(&[Gzip], &members, 10, &memory, &cancelled),
        Err(DecodeError::Cancelled)
    );
    assert_eq!(looks.get(), 4);
    assert_eq!(
        decode_within(&[Zst, Gzip], &gzip(TEXT), 10, &memory, &|| true),
        Err(DecodeError::Cancelled)
    );
}

#[test]
fn what_there_is_no_room_for_is_not_decoded_to_its_end() {
    let bomb = gzip(&vec![0; ZEROS]);
    let memory = BodyMemory::new(3 << 20);
    let (mut own, mut other) = (Hold::default(), Hold::default());
    other.cover(&memory, 1 << 20).unwrap();
    let outcome = decode_within(&[Gzip], &bomb, usize::MAX, &memory, &|| false);
    assert!(matches!(outcome, Err(DecodeError::NoRoom(_))), "{:?}", outcome.map(|d| d.len()));
    assert_eq!(memory.held(), 1 << 20);
    drop(other);
    // Alone it has room, beside what it came in.
    let memory = BodyMemory::new(ZEROS);
    own.cover(&memory, 1 << 20).unwrap();
    let bounds = Bounds { limit: ZEROS, memory: &memory, beside: 1 << 20, cancelled: &|| false };
    let decoded = decode(&[Gzip], &bomb, &bounds).unwrap();
    assert_eq!((decoded.len(), memory.held()), (ZEROS, ZEROS + (1 << 20)));
    drop((decoded, own));
    assert_eq!(memory.held(), 0);
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut rng = smg_core::rng::Rng::new(7);
    for (coding, body) in samples() {
        for _ in 0..500 {
            let mut broken = body.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(broken.len());
                broken[at] = rng.below(256) as u8;
            }
            // It may be whole all the same: not every bit matters.
            let _ = decoded(&[coding], &broken, 4096);
        }
    }
}
