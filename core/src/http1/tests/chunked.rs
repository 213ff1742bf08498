//! Chunked bodies, cut at every byte.

use super::super::{
    CHUNK_HEADROOM, ChunkErrorKind as E, ChunkedDecoder, Decoded, LAST_CHUNK,
    MAX_CHUNK_EXTENSION_BYTES, MAX_MESSAGE_EXTENSION_BYTES, MAX_TRAILER_BYTES, chunk_prefix,
};

/// The payload and the bytes behind the body (None while it is not done), or the error and the
/// payload before it.
type Outcome = Result<(Vec<u8>, Option<Vec<u8>>), (E, Vec<u8>)>;

/// Feeds the segments one after the other.
pub(super) fn decode(segments: &[&[u8]]) -> Outcome {
    let mut decoder = ChunkedDecoder::new();
    let mut payload = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let mut buf = segment.to_vec();
        match decoder.decode(&mut buf) {
            Ok(decoded) => {
                payload.extend_from_slice(&buf[..decoded.payload]);
                assert_eq!(decoded.done, decoder.is_done());
                if decoded.done {
                    let mut rest = buf[decoded.consumed..].to_vec();
                    assert_eq!(rest, segment[decoded.consumed..], "moved");
                    rest.extend(segments[index + 1..].concat());
                    return Ok((payload, Some(rest)));
                }
                assert_eq!(decoded.consumed, buf.len());
            }
            Err(error) => {
                payload.extend_from_slice(&buf[..error.payload]);
                let again = decoder.decode(&mut [b'0'; 3]).expect_err("still failed");
                assert_eq!((again.kind, again.payload), (error.kind, 0));
                return Err((error.kind, payload));
            }
        }
    }
    Ok((payload, None))
}

/// As a whole, cut in two at every byte, and byte by byte: always the same.
#[track_caller]
fn decode_every_way(bytes: &[u8]) -> Outcome {
    let whole = decode(&[bytes]);
    for cut in 0..=bytes.len() {
        assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single), whole, "byte by byte");
    whole
}

#[test]
fn extensions_and_trailers_are_not_payload() {
    let bytes = b"5;x=y\r\nhello\r\n3 ; q=\"a b\"\r\nabc\r\n00A\r\n0123456789\r\n0;end\r\n\
        X-Sum: 42\r\nSet-Cookie: t=1\r\nx-empty:\r\n\r\nHTTP/1.1";
    let want = (b"helloabc0123456789".to_vec(), Some(b"HTTP/1.1".to_vec()));
    assert_eq!(decode_every_way(bytes), Ok(want));
}

#[test]
fn bodies_without_payload_and_bodies_cut_short() {
    assert_eq!(decode_every_way(b"0\r\n\r\n"), Ok((vec![], Some(vec![]))));
    assert_eq!(decode_every_way(b"0000000000000000\r\n\r\nx"), Ok((vec![], Some(b"x".to_vec()))));
    assert_eq!(decode_every_way(b""), Ok((vec![], None)));
    assert_eq!(decode_every_way(b"10\r\n1234"), Ok((b"1234".to_vec(), None)));
    assert_eq!(decode_every_way(b"4\r\n1234\r\n"), Ok((b"1234".to_vec(), None)));
    assert_eq!(decode_every_way(b"4\r\n1234\r\n0\r\n\r"), Ok((b"1234".to_vec(), None)));
}

#[test]
fn malformed_bodies() {
    let cases: [(&[u8], E, &[u8]); 30] = [
        (b"5g\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"-5\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"0x5\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"+5\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b" 5\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b";a\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"zz\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", E::SizeOverflow, b""),
        (b"1000000000000003A\r\n{\"a\":1}\r\n0\r\n\r\n", E::SizeOverflow, b""),
        (b"00000000000000005\r\nhello\r\n0\r\n\r\n", E::SizeOverflow, b""),
        (b"1_0\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"5\r\nhello0\r\n\r\n", E::DataEnd, b"hello"),
        (b"5\r\nhelloXX3\r\nabc\r\n0\r\n\r\n", E::DataEnd, b"hello"),
        (b"3\r\nhello\r\n0\r\n\r\n", E::DataEnd, b"hel"),
        (b"5\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"5\r\nhello\n0\r\n\r\n", E::DataEnd, b"hello"),
        (b"5\r\nhello\rX0\r\n\r\n", E::DataEnd, b"hello"),
        (b"5\rX\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"5;a\nb\r\nhello\r\n0\r\n\r\n", E::Extension, b""),
        (b"5;a\rb\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"5;a\0b\r\nhello\r\n0\r\n\r\n", E::Extension, b""),
        (b"5\0\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"1 0\r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"5 \r\nhello\r\n0\r\n\r\n", E::Size, b""),
        (b"2\r\nok\r\n0\r\nno colon here\r\n\r\n", E::Trailer, b"ok"),
        (b"2\r\nok\r\n0\r\n: a\r\n\r\n", E::Trailer, b"ok"),
        (b"2\r\nok\r\n0\r\nx: a\r\n fold\r\n\r\n", E::Trailer, b"ok"),
        (b"2\r\nok\r\n0\r\nx: a\nb: c\r\n\r\n", E::Trailer, b"ok"),
        (b"2\r\nok\r\n0\r\n\n", E::Trailer, b"ok"),
    ];
    for (bytes, kind, payload) in cases {
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(decode_every_way(bytes), Err((kind, payload.to_vec())), "{shown:?}");
    }
}

#[test]
fn what_a_chunk_announces_is_known_before_it_comes() {
    let mut decoder = ChunkedDecoder::new();
    assert_eq!(decoder.announced(), 0);
    let mut decode = |bytes: &[u8]| {
        let decoded = decoder.decode(&mut bytes.to_vec()).expect("well formed");
        (decoded.payload, decoder.announced())
    };
    assert_eq!(decode(b"1"), (0, 0), "the size may still grow");
    assert_eq!(decode(b"0\r\n"), (0, 16));
    assert_eq!(decode(b"12345"), (5, 11));
    assert_eq!(decode(b"67890123456"), (11, 0));
    assert_eq!(decode(b"\r\n7fffffffffffffff\r\nab"), (2, 0x7fff_ffff_ffff_fffd));
}

#[test]
fn extensions_are_bounded_by_chunk_and_by_message() {
    let line = |bytes: u32| format!("1;{}\r\nx\r\n", "e".repeat(bytes as usize - 1)).into_bytes();
    assert!(decode(&[&line(MAX_CHUNK_EXTENSION_BYTES)]).is_ok());
    let over = decode(&[&line(MAX_CHUNK_EXTENSION_BYTES + 1)]);
    assert_eq!(over, Err((E::ExtensionTooLong, vec![])));
    let white_space = format!("1{};\r\nx\r\n", " ".repeat(5000)).into_bytes();
    assert_eq!(decode(&[&white_space]), Err((E::ExtensionTooLong, vec![])));

    let count = (MAX_MESSAGE_EXTENSION_BYTES / 4) as usize;
    let flood = line(4).repeat(count);
    assert_eq!(decode(&[&flood]), Ok((vec![b'x'; count], None)));
    let flood = line(4).repeat(count + 1);
    assert_eq!(decode(&[&flood]), Err((E::ExtensionTooLong, vec![b'x'; count])));
}

#[test]
fn trailers_are_bounded() {
    // "x: ", the value, CRLF, and the CR of the empty line count.
    let with =
        |bytes: u32| format!("0\r\nx: {}\r\n\r\n", "t".repeat(bytes as usize - 6)).into_bytes();
    assert_eq!(decode(&[&with(MAX_TRAILER_BYTES)]), Ok((vec![], Some(vec![]))));
    let over = decode(&[&with(MAX_TRAILER_BYTES + 1)]);
    assert_eq!(over, Err((E::TrailerTooLong, vec![])));
    let lines = [b"0\r\n".to_vec(), b"a:\r\n".repeat(5000)].concat();
    assert_eq!(decode(&[&lines]), Err((E::TrailerTooLong, vec![])));
}

#[test]
fn a_done_decoder_takes_nothing_more() {
    let mut decoder = ChunkedDecoder::new();
    decoder.decode(&mut LAST_CHUNK.to_vec()).expect("well formed");
    let again = decoder.decode(&mut b"5\r\nhello".to_vec()).expect("done");
    assert_eq!(again, Decoded { consumed: 0, payload: 0, done: true });
}

#[test]
fn chunk_prefixes_are_right_aligned() {
    for (len, want) in [
        (1, "1\r\n"),
        (15, "f\r\n"),
        (16, "10\r\n"),
        (0xabcdef, "abcdef\r\n"),
        (usize::MAX, "ffffffffffffffff\r\n"),
    ] {
        let (prefix, start) = chunk_prefix(len);
        assert_eq!(&prefix[start..], want.as_bytes());
        assert_eq!(start, CHUNK_HEADROOM - want.len());
    }
}

#[test]
fn framed_chunks_decode_again() {
    let mut wire = Vec::new();
    for len in [1usize, 9, 16, 255, 70_000] {
        let (prefix, start) = chunk_prefix(len);
        wire.extend_from_slice(&prefix[start..]);
        wire.extend(std::iter::repeat_n(b'p', len));
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(LAST_CHUNK);
    assert_eq!(decode(&[&wire]), Ok((vec![b'p'; 70_281], Some(vec![]))));
}
