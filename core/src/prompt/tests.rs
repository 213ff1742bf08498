//! Tests of the whole extraction.
