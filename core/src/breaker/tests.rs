//! Timelines of single breakers.
