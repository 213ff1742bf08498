//! Header lines: their classification, and the checks of framing both directions share.

use super::head::{MAX_CONNECTION_OPTIONS, Span};
use super::syntax::{eq_ignore_case, list_elements, parse_decimal};

/// One header line, as ranges of the buffer the head was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name in its original spelling. The line begins here.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
    /// Where the next line begins.
    pub line_end: u32,
    pub known: Known,
    /// Meant for this hop only: by its name, or because a `Connection` header lists it.
    pub hop_by_hop: bool,
}

impl Header {
    /// The whole line with its CRLF. The lines of a head follow each other without gaps.
    pub fn line(&self) -> Span {
        Span { start: self.name.start, end: self.line_end }
    }
}

/// The first header of that name.
pub fn find(headers: &[Header], known: Known) -> Option<&Header> {
    headers.iter().find(|header| header.known == known)
}

/// How the end of a body is found (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    None,
    /// This many bytes.
    Fixed(u64),
    /// Chunked coding: decode with [`super::ChunkedDecoder`].
    Chunked,
    /// Everything until the connection closes. Responses only.
    UntilClose,
}

impl BodyLength {
    /// Whether nothing follows the head: no body is announced, or one of no bytes.
    pub fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Fixed(0))
    }
}

/// Header names the gateway treats specially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Other,
    Accept,
    Authorization,
    Connection,
    ContentEncoding,
    ContentLength,
    ContentType,
    Date,
    Expect,
    Host,
    KeepAlive,
    ProxyAuthenticate,
    ProxyAuthorization,
    ProxyConnection,
    RetryAfter,
    SmgErrorCode,
    SmgExplain,
    SmgRoute,
    SmgRoutedWorkerId,
    SmgRoutingKey,
    SmgRoutingTokens,
    SmgTargetWorker,
    Te,
    Traceparent,
    Trailer,
    TransferEncoding,
    Upgrade,
    XApiKey,
    XForwardedFor,
    XRequestId,
}

impl Known {
    /// Classifies a header name, in any case. The length leaves at most three names to compare.
    pub fn of(name: &[u8]) -> Self {
        let candidates: &[(&[u8], Self)] = match name.len() {
            2 => &[(b"te", Self::Te)],
            4 => &[(b"host", Self::Host), (b"date", Self::Date)],
            6 => &[(b"accept", Self::Accept), (b"expect", Self::Expect)],
            7 => &[(b"trailer", Self::Trailer), (b"upgrade", Self::Upgrade)],
            9 => &[(b"x-api-key", Self::XApiKey)],
            10 => &[(b"connection", Self::Connection), (b"keep-alive", Self::KeepAlive)],
            11 => &[
                (b"traceparent", Self::Traceparent),
                (b"retry-after", Self::RetryAfter),
                (b"x-smg-route", Self::SmgRoute),
            ],
            12 => &[(b"content-type", Self::ContentType), (b"x-request-id", Self::XRequestId)],
            13 => &[(b"authorization", Self::Authorization), (b"x-smg-explain", Self::SmgExplain)],
            14 => &[(b"content-length", Self::ContentLength)],
            15 => &[(b"x-forwarded-for", Self::XForwardedFor)],
            16 => &[
                (b"content-encoding", Self::ContentEncoding),
                (b"x-smg-error-code", Self::SmgErrorCode),
                (b"proxy-connection", Self::ProxyConnection),
            ],
            17 => &[
                (b"transfer-encoding", Self::TransferEncoding),
                (b"x-smg-routing-key", Self::SmgRoutingKey),
            ],
            18 => &[(b"proxy-authenticate", Self::ProxyAuthenticate)],
            19 => &[
                (b"proxy-authorization", Self::ProxyAuthorization),
                (b"x-smg-target-worker", Self::SmgTargetWorker),
            ],
            20 => &[(b"x-smg-routing-tokens", Self::SmgRoutingTokens)],
            22 => &[(b"x-smg-routed-worker-id", Self::SmgRoutedWorkerId)],
            _ => &[],
        };
        candidates
            .iter()
            .find(|(candidate, _)| eq_ignore_case(candidate, name))
            .map_or(Self::Other, |&(_, known)| known)
    }

    /// Never relayed, whatever `Connection` says (RFC 9110 §7.6.1). `Trailer` is one of them
    /// because trailers are dropped, and `Expect` because the gateway itself answers it.
    fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::Expect
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Te
                | Self::Trailer
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }

    /// Cannot be removed by naming it in `Connection`: framing, what the body means, and what
    /// the gateway itself vouches for.
    fn is_essential(self) -> bool {
        matches!(
            self,
            Self::Authorization
                | Self::ContentEncoding
                | Self::ContentLength
                | Self::ContentType
                | Self::Host
                | Self::XApiKey
                | Self::XForwardedFor
                | Self::XRequestId
        )
    }
}

/// What the header lines say about the message's end and the connection's future.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Framing {
    pub length: Option<u64>,
    pub transfer: Option<Transfer>,
    pub close: bool,
    pub keep_alive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// Exactly one `Transfer-Encoding: chunked`.
    Chunked,
    /// Ends in `chunked`, behind a coding this gateway does not undo.
    Unsupported,
}

/// A fault of the header lines that is the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldError {
    BareLineFeed,
    ContentLength,
    RepeatedContentLength,
    TransferEncoding,
    TooManyConnectionOptions,
}

/// Fills `headers` from what httparse found in the first `head_len` bytes of `buf`, and checks
/// what httparse lets pass.
pub(super) fn collect(
    buf: &[u8],
    head_len: usize,
    parsed: &[httparse::Header<'_>],
    headers: &mut Vec<Header>,
) -> Result<Framing, FieldError> {
    headers.clear();
    // The blank line, and the line before it.
    if !buf[..head_len].ends_with(b"\r\n\r\n") {
        return Err(FieldError::BareLineFeed);
    }
    let mut framing = Framing::default();
    let mut line_end = head_len - 2;
    // Backwards, because a line ends where the next one begins.
    for field in parsed.iter().rev() {
        let name = Span::within(buf, field.name.as_bytes());
        if !buf[..name.start as usize].ends_with(b"\r\n") {
            return Err(FieldError::BareLineFeed);
        }
        let known = Known::of(field.name.as_bytes());
        headers.push(Header {
            name,
            value: Span::within(buf, field.value),
            line_end: line_end as u32,
            known,
            hop_by_hop: known.is_hop_by_hop(),
        });
        line_end = name.start as usize;
        framing.note(known, field.value)?;
    }
    headers.reverse();
    mark_connection_options(buf, headers, &mut framing)?;
    Ok(framing)
}

impl Framing {
    fn note(&mut self, known: Known, value: &[u8]) -> Result<(), FieldError> {
        match known {
            Known::ContentLength => {
                if self.length.is_some() {
                    return Err(FieldError::RepeatedContentLength);
                }
                self.length = Some(parse_decimal(value).ok_or(FieldError::ContentLength)?);
            }
            Known::TransferEncoding => {
                if self.transfer.is_some() {
                    return Err(FieldError::TransferEncoding);
                }
                self.transfer = Some(parse_transfer_encoding(value)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// `chunked` alone is understood. A list that ends in one `chunked` is well formed but needs a
/// coding we lack; in anything else the end of the body is a matter of opinion.
fn parse_transfer_encoding(value: &[u8]) -> Result<Transfer, FieldError> {
    if eq_ignore_case(value, b"chunked") {
        return Ok(Transfer::Chunked);
    }
    let mut codings = value.rsplit(|&byte| byte == b',').map(super::syntax::trim_whitespace);
    let last_is_chunked = codings.next().is_some_and(|last| eq_ignore_case(last, b"chunked"));
    let well_formed = last_is_chunked
        && codings.all(|coding| {
            super::syntax::is_token(coding)
                && !eq_ignore_case(coding, b"chunked")
                && !eq_ignore_case(coding, b"identity")
        });
    if well_formed { Ok(Transfer::Unsupported) } else { Err(FieldError::TransferEncoding) }
}

/// Reads the `Connection` headers and marks the headers they list.
fn mark_connection_options(
    buf: &[u8],
    headers: &mut [Header],
    framing: &mut Framing,
) -> Result<(), FieldError> {
    let mut named = [Span::default(); MAX_CONNECTION_OPTIONS];
    let mut named_len = 0;
    let mut seen = 0;
    for header in headers.iter().filter(|header| header.known == Known::Connection) {
        for option in list_elements(header.value.of(buf)) {
            seen += 1;
            if seen > MAX_CONNECTION_OPTIONS {
                return Err(FieldError::TooManyConnectionOptions);
            }
            if eq_ignore_case(option, b"close") {
                framing.close = true;
            } else if eq_ignore_case(option, b"keep-alive") {
                framing.keep_alive = true;
            } else {
                named[named_len] = Span::within(buf, option);
                named_len += 1;
            }
        }
    }
    let named = &named[..named_len];
    if named.is_empty() {
        return Ok(());
    }
    for header in headers.iter_mut().filter(|header| !header.known.is_essential()) {
        let name = header.name.of(buf);
        header.hop_by_hop |= named.iter().any(|option| eq_ignore_case(option.of(buf), name));
    }
    Ok(())
}
