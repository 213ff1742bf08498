//! Tests that cross the module's files: one per direction and subject, tables worked out by
//! hand, and properties against naive models.

mod chunked;
mod properties;
mod requests;
mod responses;
mod rewriting;
mod simple;

use super::{Header, RequestError, RequestHead, ResponseError, ResponseHead};

fn parse_request(bytes: &[u8]) -> Result<Option<(RequestHead, Vec<Header>)>, RequestError> {
    let mut headers = Vec::new();
    Ok(super::parse_request(bytes, &mut headers)?.map(|head| (head, headers)))
}

/// A request that must be whole and valid.
fn request(bytes: &[u8]) -> (RequestHead, Vec<Header>) {
    parse_request(bytes).expect("valid").expect("whole")
}

fn parse_response(bytes: &[u8]) -> Result<Option<(ResponseHead, Vec<Header>)>, ResponseError> {
    let mut headers = Vec::new();
    Ok(super::parse_response(bytes, false, &mut headers)?.map(|head| (head, headers)))
}

/// A response (not to HEAD) that must be whole and valid.
fn response(bytes: &[u8]) -> (ResponseHead, Vec<Header>) {
    parse_response(bytes).expect("valid").expect("whole")
}

/// The headers as names and values.
fn fields<'a>(buf: &'a [u8], headers: &[Header]) -> Vec<(&'a [u8], &'a [u8])> {
    headers.iter().map(|header| (header.name.of(buf), header.value.of(buf))).collect()
}
