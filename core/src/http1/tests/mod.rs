//! Tests that cross the module's files.
